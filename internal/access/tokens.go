package access

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/durable"
)

const (
	maxTokens    = 10_000
	maxGrants    = 64 // of a token
	maxNote      = 256
	maxTokenFile = 16 << 20 // bytes, unsealed

	tokenFileName    = "tokens" // in the envelope
	tokenFileVersion = 1
)

// Store is what of a store this package needs.
type Store interface {
	SealBeside(dst []byte, name string, plain []byte) ([]byte, error)
	OpenBeside(name string, sealed []byte) ([]byte, error)
	Pseudonym(purpose string, names ...string) string
}

// Token is a bearer token without its secret.
type Token struct {
	ID      string    `json:"id"` // 8 hexadecimal digits, unrelated to the secret
	Note    string    `json:"note,omitempty"`
	Grants  []Grant   `json:"grants"`
	Created time.Time `json:"created"` // to the second, in UTC
}

// Summary tells of a token by its id and roles, without names.
func (t Token) Summary() string {
	s := "token:" + t.ID
	for _, g := range t.Grants {
		if role := " " + string(g.Role); !strings.HasSuffix(s, role) {
			s += role
		}
	}
	return s
}

// Tokens are the bearer tokens of a store. They are kept in a file, sealed under the keys of the store (docs/format.md
// §19), and of each only the SHA-256 of its secret. Methods are safe for concurrent use; the file must have no other writer.
type Tokens struct {
	path  string
	store Store

	mu      sync.Mutex // held while the file is read or written
	current atomic.Pointer[tokenSet]
}

// storedToken is a token in the file.
type storedToken struct {
	Token
	Hash string `json:"sha256"`
}

// tokenSet is what holds at a time. It is never changed.
type tokenSet struct {
	tokens []storedToken // in order of id
	byHash map[[sha256.Size]byte]*Caller
}

// OpenTokens reads the tokens of a store. A file that is not there has none, and is made with the first.
func OpenTokens(path string, store Store) (*Tokens, error) {
	t := &Tokens{path: path, store: store}
	set, err := t.read()
	if errors.Is(err, fs.ErrNotExist) {
		set, err = newTokenSet(nil), nil
	}
	if err != nil {
		return nil, err
	}
	t.current.Store(set)
	return t, nil
}

// Reload reads the file again, which may have been replaced from outside. After an error the tokens are what they were.
func (t *Tokens) Reload() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	set, err := t.read()
	if errors.Is(err, fs.ErrNotExist) && len(t.current.Load().tokens) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	t.current.Store(set)
	return nil
}

// List returns the tokens, the oldest first.
func (t *Tokens) List() []Token {
	stored := t.current.Load().tokens
	list := make([]Token, len(stored))
	for i := range stored {
		list[i] = stored[i].Token
		list[i].Grants = slices.Clone(stored[i].Grants)
	}
	slices.SortStableFunc(list, func(a, b Token) int { return a.Created.Compare(b.Created) })
	return list
}

// Get returns a token by its id. One that does not exist is engine.ErrNotFound.
func (t *Tokens) Get(id string) (Token, error) {
	for _, s := range t.current.Load().tokens {
		if s.ID == id {
			s.Grants = slices.Clone(s.Grants)
			return s.Token, nil
		}
	}
	return Token{}, fmt.Errorf("token %q: %w", id, engine.ErrNotFound)
}

// Create makes a token with these grants and returns it with its secret, which cannot be had again, when it is durable.
func (t *Tokens) Create(note string, grants []Grant, now time.Time) (Token, string, error) {
	if err := checkToken(note, grants, now); err != nil {
		return Token{}, "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.current.Load().tokens
	if len(old) >= maxTokens {
		return Token{}, "", fmt.Errorf("%w: there are %d tokens already, revoke some", engine.ErrInvalid, len(old))
	}
	secret := newSecret()
	hash := sha256.Sum256([]byte(secret))
	made := Token{ID: newID(old), Note: note, Grants: slices.Clone(grants), Created: now.UTC().Truncate(time.Second)}
	for i, g := range made.Grants {
		if !g.Expires.IsZero() {
			made.Grants[i].Expires = g.Expires.UTC().Truncate(time.Second)
		}
	}
	all := append(slices.Clone(old), storedToken{made, hex.EncodeToString(hash[:])})
	slices.SortFunc(all, byID)
	set := newTokenSet(all)
	if err := t.write(set); err != nil {
		return Token{}, "", err
	}
	t.current.Store(set)
	made.Grants = slices.Clone(made.Grants)
	return made, secret, nil
}

// Revoke makes a token invalid at once, and returns when that is durable: with an error other than engine.ErrNotFound it
// may be valid again after a restart.
func (t *Tokens) Revoke(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.current.Load().tokens
	left := slices.DeleteFunc(slices.Clone(old), func(s storedToken) bool { return s.ID == id })
	if len(left) == len(old) {
		return fmt.Errorf("token %q: %w", id, engine.ErrNotFound)
	}
	set := newTokenSet(left)
	t.current.Store(set)
	if err := t.write(set); err != nil {
		return fmt.Errorf("token %s is revoked only until the next start: %w", id, err)
	}
	return nil
}

// caller returns who has a secret, nil for nobody. It is looked up by its hash, so that how long it takes tells nothing
// about the secrets there are.
func (t *Tokens) caller(secret string) *Caller {
	if len(secret) != tokenChars {
		return nil
	}
	return t.current.Load().byHash[sha256.Sum256([]byte(secret))]
}

func checkToken(note string, grants []Grant, now time.Time) error {
	if len(note) > maxNote || !utf8.ValidString(note) {
		return fmt.Errorf("%w: a note must be UTF-8 of at most %d bytes", engine.ErrInvalid, maxNote)
	}
	if err := validate(grants); err != nil {
		return err
	}
	for _, g := range grants {
		if !g.live(now) {
			return fmt.Errorf("%w: a grant that expired at %s", engine.ErrInvalid, g.Expires.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// newID makes an id that no token has.
func newID(taken []storedToken) string {
	for {
		var b [4]byte
		rand.Read(b[:])
		id := hex.EncodeToString(b[:])
		if !slices.ContainsFunc(taken, func(s storedToken) bool { return s.ID == id }) {
			return id
		}
	}
}

func byID(a, b storedToken) int { return cmp.Compare(a.ID, b.ID) }

func newTokenSet(tokens []storedToken) *tokenSet {
	set := &tokenSet{tokens: tokens, byHash: make(map[[sha256.Size]byte]*Caller, len(tokens))}
	for _, s := range tokens {
		var hash [sha256.Size]byte
		hex.Decode(hash[:], []byte(s.Hash))
		set.byHash[hash] = &Caller{Name: "token:" + s.ID, Grants: s.Grants}
	}
	return set
}

// tokenFile is the file unsealed.
type tokenFile struct {
	Version int           `json:"version"`
	Tokens  []storedToken `json:"tokens"`
}

func (t *Tokens) write(set *tokenSet) error {
	plain, err := json.Marshal(tokenFile{tokenFileVersion, set.tokens})
	if err != nil {
		return fmt.Errorf("writing tokens: %w", err)
	}
	if len(plain) > maxTokenFile {
		return &engine.LimitError{What: "the list of tokens", Size: int64(len(plain)), Most: maxTokenFile}
	}
	sealed, err := t.store.SealBeside(nil, tokenFileName, plain)
	if err == nil {
		err = durable.WriteFile(t.path, sealed)
	}
	if err != nil {
		return fmt.Errorf("writing tokens: %w", err)
	}
	return nil
}

func (t *Tokens) read() (*tokenSet, error) {
	sealed, err := durable.ReadFile(t.path, maxTokenFile+1<<10)
	if err != nil {
		return nil, fmt.Errorf("reading tokens: %w", err)
	}
	plain, err := t.store.OpenBeside(tokenFileName, sealed)
	if err != nil {
		return nil, fmt.Errorf("reading tokens: %w", err)
	}
	tokens, err := decodeTokens(plain)
	if err != nil {
		return nil, fmt.Errorf("reading tokens: %w", err)
	}
	return newTokenSet(tokens), nil
}

// decodeTokens is strict: it accepts nothing but what write would have written.
func decodeTokens(plain []byte) ([]storedToken, error) {
	bad := func(reason string) ([]storedToken, error) {
		return nil, &engine.CorruptError{Record: tokenFileName, Reason: reason}
	}
	var file tokenFile
	if err := json.Unmarshal(plain, &file); err != nil {
		return bad("is not what ckptd writes")
	}
	if file.Version > tokenFileVersion {
		return nil, engine.ErrNewerFormat
	}
	again, err := json.Marshal(tokenFile{tokenFileVersion, file.Tokens})
	if err != nil || !bytes.Equal(again, plain) {
		return bad("is not what ckptd writes")
	}
	if len(file.Tokens) > maxTokens {
		return bad("has too many tokens")
	}
	hashes := make(map[string]bool, len(file.Tokens))
	for i, s := range file.Tokens {
		switch {
		case !isHex(s.ID, 4) || i > 0 && byID(file.Tokens[i-1], s) >= 0:
			return bad("has ids that are malformed or not in order")
		case !isHex(s.Hash, sha256.Size) || hashes[s.Hash]:
			return bad("has hashes that are malformed or not unique")
		case len(s.Note) > maxNote || validate(s.Grants) != nil:
			return bad("has a token that could not have been made")
		}
		hashes[s.Hash] = true
	}
	return file.Tokens, nil
}

// isHex reports whether s is n bytes in lower-case hexadecimal.
func isHex(s string, n int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == n && hex.EncodeToString(b) == s
}
