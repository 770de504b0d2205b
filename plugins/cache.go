package plugins

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/ckptd/ckptd/plugins/meter"
)

// wazeroVersion is part of the cache key. A test compares it with go.mod.
const wazeroVersion = "v1.12.0"

const (
	cacheSuffix = ".native"
	cacheMagic  = "ckptd native 1\n"
	workPrefix  = "work-"
	maxCached   = 1 << 30

	staleWork = 24 * time.Hour // age at which a dead process's leftovers are removed
)

// cache keeps compiled modules on disk. The runtime's own cache files are machine code with a
// checksum that anybody can compute. So the folder holds files in our own format, with an
// HMAC-SHA256 over the module's key and the entire contents. To compile a module, an authentic file
// is copied into a fresh folder private to this process, where the runtime reads it. Files that the
// runtime writes there are moved back out. One compilation runs at a time.
//
// A file is: cacheMagic ‖ MAC (32) ‖ length of the runtime's name (1) ‖ that name ‖ contents. A
// file that isn't authentic counts as missing and is replaced.
type cache struct {
	dir     string
	macKey  [32]byte
	work    string // private to this process
	inner   string // the runtime's folder inside work
	runtime wazero.CompilationCache
}

func openCache(dir string, key [32]byte) (*cache, error) {
	if key == [32]byte{} {
		return nil, errors.New("CacheKey is not set")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s is accessible to other users (%v): run chmod 700 on it", dir, mode)
	}
	c := &cache{dir: dir, macKey: key}
	c.removeStale()
	if c.work, err = os.MkdirTemp(dir, workPrefix); err != nil {
		return nil, err
	}
	if c.runtime, err = wazero.NewCompilationCacheWithDir(c.work); err == nil {
		err = c.findInner()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.work))
	}
	return c, nil
}

// removeStale removes the folders of dead processes. Failing to is harmless.
func (c *cache) removeStale() {
	list, _ := filepath.Glob(filepath.Join(c.dir, workPrefix+"*"))
	for _, path := range list {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > staleWork {
			_ = os.RemoveAll(path)
		}
	}
}

// findInner finds the single folder that the runtime created.
func (c *cache) findInner() error {
	list, err := os.ReadDir(c.work)
	if err != nil {
		return err
	}
	if len(list) != 1 || !list[0].IsDir() {
		return errors.New("the runtime stores its files in an unknown way")
	}
	c.inner = filepath.Join(c.work, list[0].Name())
	return nil
}

func (c *cache) close() error {
	return errors.Join(c.runtime.Close(context.Background()), os.RemoveAll(c.work))
}

// compile compiles a module or takes it from the cache. Failing to write the cache is not an error.
func (c *cache) compile(ctx context.Context, rt wazero.Runtime, bin []byte) (wazero.CompiledModule, error) {
	key := cacheKey(bin)
	defer c.empty()
	known := ""
	if name, contents, err := c.read(key); err == nil {
		if os.WriteFile(filepath.Join(c.inner, name), contents, 0o600) == nil {
			known = name
		}
	}
	m, err := rt.CompileModule(ctx, bin)
	if err != nil && known != "" && ctx.Err() == nil {
		c.empty() // authentic, but the runtime can't use it
		known = ""
		m, err = rt.CompileModule(ctx, bin)
	}
	if err != nil {
		return nil, err
	}
	if list, err := os.ReadDir(c.inner); err == nil {
		for _, f := range list {
			if f.Name() != known && !strings.HasSuffix(f.Name(), ".tmp") {
				_ = c.write(key, f.Name())
			}
		}
	}
	return m, nil
}

// empty clears the work folder for the next module.
func (c *cache) empty() {
	list, _ := os.ReadDir(c.inner)
	for _, f := range list {
		_ = os.Remove(filepath.Join(c.inner, f.Name()))
	}
}

// cacheKey hashes the inputs of the machine code. The processor's features are in the runtime's
// file name.
func cacheKey(bin []byte) [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "ckptd plugin cache\n%s\n%d\n%s\n%s\n", wazeroVersion, meter.Version, runtime.GOOS, runtime.GOARCH)
	h.Write(bin)
	return [32]byte(h.Sum(nil))
}

func (c *cache) path(key [32]byte) string {
	return filepath.Join(c.dir, hex.EncodeToString(key[:])+cacheSuffix)
}

func (c *cache) mac(key [32]byte, body []byte) []byte {
	h := hmac.New(sha256.New, c.macKey[:])
	h.Write([]byte(cacheMagic))
	h.Write(key[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(body))))
	h.Write(body)
	return h.Sum(nil)
}

var errNotAuthentic = errors.New("not authentic")

// read returns the runtime's file name and the contents of an authentic file.
func (c *cache) read(key [32]byte) (name string, contents []byte, err error) {
	info, err := os.Stat(c.path(key))
	if err != nil {
		return "", nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxCached {
		return "", nil, errNotAuthentic
	}
	b, err := os.ReadFile(c.path(key))
	if err != nil {
		return "", nil, err
	}
	b, ok := bytes.CutPrefix(b, []byte(cacheMagic))
	if !ok || len(b) < sha256.Size+1 || !hmac.Equal(b[:sha256.Size], c.mac(key, b[sha256.Size:])) {
		return "", nil, errNotAuthentic
	}
	b = b[sha256.Size:]
	n := int(b[0])
	if len(b) < 1+n || !validName(string(b[1:1+n])) {
		return "", nil, errNotAuthentic
	}
	return string(b[1 : 1+n]), b[1+n:], nil
}

// validName reports whether a name is in the runtime's form: hexadecimal digits.
func validName(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && name != ""
}

// write stores one of the runtime's files.
func (c *cache) write(key [32]byte, name string) error {
	if !validName(name) || len(name) > 255 {
		return fs.ErrInvalid
	}
	contents, err := os.ReadFile(filepath.Join(c.inner, name))
	if err != nil {
		return err
	}
	body := append(append([]byte{byte(len(name))}, name...), contents...)
	out := append([]byte(cacheMagic), c.mac(key, body)...)
	temp := filepath.Join(c.work, "new")
	if err := os.WriteFile(temp, append(out, body...), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, c.path(key))
}
