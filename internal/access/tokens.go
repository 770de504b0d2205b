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
	"strconv"
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
	tokenFileVersion = 2        // 1 has no makers
)

// Store is the part of a store that this package needs.
type Store interface {
	SealSidecar(dst []byte, name string, plain []byte) ([]byte, error)
	OpenSidecar(name string, sealed []byte) ([]byte, error)
	Pseudonym(purpose string, names ...string) string
}

// Token is a bearer token without its secret.
type Token struct {
	ID      string    `json:"id"` // 8 hexadecimal digits, unrelated to the secret
	Note    string    `json:"note,omitempty"`
	Grants  []Grant   `json:"grants"`
	Created time.Time `json:"created"` // to the second, in UTC
	// MadeBy is the name of the Caller that created it, or of that token's creator if that token
	// was revoked and this one kept; "" for the owner of the store, and for tokens from before
	// creators were recorded.
	MadeBy string `json:"made_by,omitempty"`
}

// childOf reports whether the token was made with the one that has the id.
func (t *Token) childOf(id string) bool { return t.MadeBy == tokenCaller(id) }

// tokenCaller is how the bearer of a token is called.
func tokenCaller(id string) string { return "token:" + id }

// Summary describes a token by its id and roles, without names.
func (t Token) Summary() string {
	s := "token:" + t.ID
	for _, g := range t.Grants {
		if role := " " + string(g.Role); !strings.HasSuffix(s, role) {
			s += role
		}
	}
	return s
}

// Tokens are the bearer tokens of a store. They are kept in a file, sealed under the keys of the
// store (docs/format.md §19), and of each only the SHA-256 of its secret. Methods are safe for
// concurrent use; the file must have no other writer.
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

// tokenSet is the set of valid tokens at one time. It is immutable.
type tokenSet struct {
	tokens []storedToken // in order of id
	byHash map[[sha256.Size]byte]*Caller
}

// OpenTokens reads the tokens of a store. A file that is not there has none, and is made with the
// first.
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

// Reload reads the file again, which may have been replaced from outside. After an error the tokens
// are unchanged.
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

// Create makes a token for the owner of the store.
func (t *Tokens) Create(note string, grants []Grant, now time.Time) (Token, string, error) {
	return t.Issue(&Caller{Grants: []Grant{Everything()}}, note, grants, now)
}

// Issue makes a token with these grants, which its maker must be allowed to give, and returns it
// with its secret, which is not stored, once it is durable. The tokens of one creator are limited:
// see shares.
func (t *Tokens) Issue(maker *Caller, note string, grants []Grant, now time.Time) (Token, string, error) {
	if err := checkToken(note, grants, now); err != nil {
		return Token{}, "", err
	}
	if maker.Name != "" && !isCaller(maker.Name) {
		return Token{}, "", fmt.Errorf("%w: %q cannot create tokens", engine.ErrInvalid, maker.Name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.current.Load().tokens
	if len(old) >= maxTokens {
		return Token{}, "", fmt.Errorf("%w: there are already %d tokens: revoke some", engine.ErrInvalid, len(old))
	}
	// It may have been revoked since the request was let in, and those that it made are gone with
	// it.
	if by := strings.HasPrefix(maker.Name, "token:"); by && !slices.ContainsFunc(old, func(s storedToken) bool { return tokenCaller(s.ID) == maker.Name }) {
		return Token{}, "", &RefusedError{Why: "the token was revoked while it was creating another"}
	}
	for _, s := range maker.shares(grants, now) {
		if err := s.check(old); err != nil {
			return Token{}, "", err
		}
	}
	secret := newSecret()
	hash := sha256.Sum256([]byte(secret))
	made := Token{ID: newID(old), Note: note, Grants: slices.Clone(grants), Created: now.UTC().Truncate(time.Second), MadeBy: maker.Name}
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

// Revoke makes a token invalid at once, and with it those that were made with it and with those,
// unless they are to be kept: then its children are those of its maker, with which they can be
// revoked. It returns the ids of all of them, the token's own first, when that is durable: with an
// error other than engine.ErrNotFound they may be valid again after a restart.
func (t *Tokens) Revoke(id string, keepChildren bool) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.current.Load().tokens
	at := slices.IndexFunc(old, func(s storedToken) bool { return s.ID == id })
	if at < 0 {
		return nil, fmt.Errorf("token %q: %w", id, engine.ErrNotFound)
	}
	gone, left := []string{id}, slices.Clone(old)
	if keepChildren {
		for i := range left {
			if left[i].childOf(id) {
				left[i].MadeBy = old[at].MadeBy
			}
		}
	} else {
		gone = descent(old, id)
	}
	set := newTokenSet(slices.DeleteFunc(left, func(s storedToken) bool { return slices.Contains(gone, s.ID) }))
	t.current.Store(set)
	if err := t.write(set); err != nil {
		return nil, fmt.Errorf("token %s is revoked until the next restart only: %w", id, err)
	}
	return gone, nil
}

// descent are the ids of a token, of those made with it, of those made with these, and so on.
func descent(tokens []storedToken, id string) []string {
	children := map[string][]string{}
	for _, s := range tokens {
		children[s.MadeBy] = append(children[s.MadeBy], s.ID)
	}
	found := []string{id}
	for i := 0; i < len(found); i++ {
		found = append(found, children[tokenCaller(found[i])]...)
	}
	return found
}

// caller returns the caller with a secret, or nil. It looks the secret up by its hash, so that the
// time it takes reveals nothing about existing secrets.
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

// newID makes an id that no token has, nor had one with which another was made.
func newID(taken []storedToken) string {
	for {
		var b [4]byte
		rand.Read(b[:])
		id := hex.EncodeToString(b[:])
		if !slices.ContainsFunc(taken, func(s storedToken) bool { return s.ID == id || s.childOf(id) }) {
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
		set.byHash[hash] = &Caller{Name: tokenCaller(s.ID), Grants: s.Grants}
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
	sealed, err := t.store.SealSidecar(nil, tokenFileName, plain)
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
	plain, err := t.store.OpenSidecar(tokenFileName, sealed)
	if err != nil {
		return nil, fmt.Errorf("reading tokens: %w", err)
	}
	tokens, err := decodeTokens(plain)
	if err != nil {
		return nil, fmt.Errorf("reading tokens: %w", err)
	}
	return newTokenSet(tokens), nil
}

// decodeTokens is strict: it accepts only the exact output of write.
func decodeTokens(plain []byte) ([]storedToken, error) {
	bad := func(reason string) ([]storedToken, error) {
		return nil, &engine.CorruptError{Record: tokenFileName, Reason: reason}
	}
	var file tokenFile
	if err := json.Unmarshal(plain, &file); err != nil {
		return bad("was not written by ckptd")
	}
	if file.Version > tokenFileVersion {
		return nil, engine.ErrNewerFormat
	}
	if file.Version < 1 {
		return bad("has no version")
	}
	again, err := json.Marshal(file)
	if err != nil || !bytes.Equal(again, plain) {
		return bad("was not written by ckptd")
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
		case s.MadeBy != "" && (file.Version < 2 || !isCaller(s.MadeBy)):
			return bad("has a token with a malformed creator")
		case len(s.Note) > maxNote || validate(s.Grants) != nil:
			return bad("has a token that ckptd could not have created")
		}
		hashes[s.Hash] = true
	}
	return file.Tokens, nil
}

// isCaller reports whether a name is of the form that names of callers have.
func isCaller(name string) bool {
	kind, who, _ := strings.Cut(name, ":")
	switch kind {
	case "token":
		return isHex(who, 4)
	case "jwt", "certificate":
		return isHex(who, 16)
	case "peer":
		uid, err := strconv.ParseUint(who, 10, 32)
		return err == nil && strconv.FormatUint(uid, 10) == who
	}
	return false
}

// isHex reports whether s is n bytes in lower-case hexadecimal.
func isHex(s string, n int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == n && hex.EncodeToString(b) == s
}
