package crypto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// The plaintexts of keystore entries (docs/format.md §16).

const (
	entryVersion = 1
	maxID        = 256      // bytes of a tenant or user id
	maxDataKeys  = 1024     // of one list of data keys
	maxEntry     = 64 << 10 // bytes of a wrapped entry
)

// dataKey is one data key.
type dataKey struct {
	number uint32
	key    *secret
}

// dataKeys is the list of data keys of a user or of the store, oldest first, never empty. It is
// immutable: a rotation makes a new list.
type dataKeys struct {
	list []dataKey
}

func newDataKeys() *dataKeys {
	return &dataKeys{list: []dataKey{{number: 1, key: randomSecret()}}}
}

func (d *dataKeys) newest() uint32 { return d.list[len(d.list)-1].number }

// find returns the data key with a number. A missing one below the newest was destroyed.
func (d *dataKeys) find(number uint32) (*secret, error) {
	for i := len(d.list) - 1; i >= 0; i-- {
		if d.list[i].number == number {
			return d.list[i].key, nil
		}
	}
	if number < d.newest() {
		return nil, fmt.Errorf("%w: key number %d", ErrKeyDestroyed, number)
	}
	return nil, fmt.Errorf("%w %d: the newest is %d", ErrUnknownKeyNumber, number, d.newest())
}

// room is enough capacity for the plaintext of an entry with these keys: a buffer that grows would
// leave copies of keys behind.
func (d *dataKeys) room() int { return 1 + 10 + 2*(2+maxID) + keySize + 2 + len(d.list)*(4+keySize) }

func (d *dataKeys) wipe() {
	for _, g := range d.list {
		g.key.wipe()
	}
}

// storeEntry is the plaintext of the entry "store".
type storeEntry struct {
	created uint64 // Unix milliseconds
	id      [16]byte
	token   *secret
	keys    *dataKeys
}

// userEntry is the plaintext of the entry of a user.
type userEntry struct {
	created      uint64 // Unix milliseconds
	tenant, user string
	index        *secret
	keys         *dataKeys
}

// destroyedEntry is the plaintext of the marker that replaces a destroyed user. It does not name
// the user.
type destroyedEntry struct {
	destroyed uint64 // Unix milliseconds
}

func (e *storeEntry) encode() ([]byte, error) {
	b := make([]byte, 0, e.keys.room())
	b = append(b, entryVersion)
	b = binary.AppendUvarint(b, e.created)
	b = append(b, e.id[:]...)
	return appendKeys(b, e.token, e.keys)
}

func decodeStoreEntry(plain []byte) (*storeEntry, error) {
	r := entryReader{b: plain}
	r.version()
	e := &storeEntry{created: r.millis()}
	copy(e.id[:], r.take(len(e.id)))
	e.token, e.keys = r.keys()
	return e, r.end()
}

func (e *userEntry) encode() ([]byte, error) {
	b := make([]byte, 0, e.keys.room())
	b = append(b, entryVersion)
	b = binary.AppendUvarint(b, e.created)
	for _, id := range []string{e.tenant, e.user} {
		b = binary.AppendUvarint(b, uint64(len(id)))
		b = append(b, id...)
	}
	return appendKeys(b, e.index, e.keys)
}

func decodeUserEntry(plain []byte) (*userEntry, error) {
	r := entryReader{b: plain}
	r.version()
	e := &userEntry{created: r.millis(), tenant: r.id(), user: r.id()}
	e.index, e.keys = r.keys()
	return e, r.end()
}

func (e *destroyedEntry) encode() []byte {
	return binary.AppendUvarint([]byte{entryVersion}, e.destroyed)
}

func decodeDestroyedEntry(plain []byte) (*destroyedEntry, error) {
	r := entryReader{b: plain}
	r.version()
	e := &destroyedEntry{destroyed: r.millis()}
	return e, r.end()
}

// appendKeys appends the permanent key and the list of data keys.
func appendKeys(b []byte, stable *secret, keys *dataKeys) ([]byte, error) {
	if len(keys.list) > maxDataKeys {
		return nil, fmt.Errorf("%d data keys, at most %d allowed", len(keys.list), maxDataKeys)
	}
	add := func(key []byte) { b = append(b, key...) }
	err := stable.use(add)
	b = binary.AppendUvarint(b, uint64(len(keys.list)))
	for _, g := range keys.list {
		b = binary.BigEndian.AppendUint32(b, g.number)
		err = errors.Join(err, g.key.use(add))
	}
	return b, err
}

// entryReader decodes strictly: after the first failure it returns only zeros.
type entryReader struct {
	b   []byte
	err error
}

func (r *entryReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.b = nil
}

// take returns the next n bytes, or nil. They are in the buffer being read.
func (r *entryReader) take(n int) []byte {
	if len(r.b) < n {
		r.fail("truncated")
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *entryReader) version() {
	switch p := r.take(1); {
	case p == nil || p[0] == entryVersion:
	case p[0] > entryVersion:
		r.fail("%w: entry version %d", ErrNewerFormat, p[0])
	default:
		r.fail("entry version %d", p[0])
	}
}

// uvarint accepts only the shortest form.
func (r *entryReader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.fail("bad length or time")
		return 0
	}
	r.b = r.b[n:]
	if v > limit {
		r.fail("%d is over the limit of %d", v, limit)
		return 0
	}
	return v
}

func (r *entryReader) millis() uint64 { return r.uvarint(math.MaxInt64) }

func (r *entryReader) id() string {
	id := string(r.take(int(r.uvarint(maxID))))
	if err := checkID(id); err != nil {
		r.fail("%w", err)
	}
	return id
}

func (r *entryReader) secret() *secret {
	if p := r.take(keySize); p != nil {
		return newSecret(p)
	}
	return nil
}

func (r *entryReader) keys() (*secret, *dataKeys) {
	stable := r.secret()
	n := int(r.uvarint(maxDataKeys))
	if n == 0 {
		r.fail("no data key")
	}
	if len(r.b) != n*(4+keySize) { // before anything is allocated for n
		r.fail("%d data keys in %d bytes", n, len(r.b))
		return nil, nil
	}
	keys := &dataKeys{list: make([]dataKey, 0, n)}
	last := uint32(0)
	for range n {
		p := r.take(4)
		if p == nil {
			return nil, nil
		}
		number := binary.BigEndian.Uint32(p)
		if number <= last {
			r.fail("key number %d after %d", number, last)
			return nil, nil
		}
		last = number
		keys.list = append(keys.list, dataKey{number: number, key: r.secret()})
	}
	return stable, keys
}

func (r *entryReader) end() error {
	if r.err == nil && len(r.b) != 0 {
		r.fail("%d bytes left over", len(r.b))
	}
	return r.err
}

// checkID accepts the ids of docs/format.md §15.
func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidID)
	case len(id) > maxID:
		return fmt.Errorf("%w: %d bytes, want at most %d", ErrInvalidID, len(id), maxID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: it is not UTF-8", ErrInvalidID)
	}
	return nil
}
