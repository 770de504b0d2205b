package badger

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	badgerdb "github.com/dgraph-io/badger/v4"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

const (
	markerName = "CKPTD"
	markerTemp = "CKPTD.tmp" // prefix of markers being written
	driverName = "badger"
	mostMarker = 4 << 10 // bytes
	// formatVersion is the version of the directory's format. It only ever grows.
	formatVersion = 2
)

// claim is the hold on a directory: its marker file and the directory itself, locked. A marker can
// be removed or replaced while the store is open; the lock of the directory holds all the same.
type claim struct {
	marker, dir *os.File
	id          commitlog.ID // of the directory
}

// claimDir makes sure that dir is a store of this driver, making it one if it is empty and create
// is set, and locks it. It changes nothing in a directory that is not ours.
func claimDir(dir string, create bool) (*claim, error) {
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, dirError(err)
		}
	}
	_, ours, err := readMarker(dir)
	if err != nil {
		return nil, err
	}
	if !ours {
		if err := checkEmpty(dir); err != nil {
			return nil, err
		}
		if !create {
			return nil, fmt.Errorf("no store there: %w", fs.ErrNotExist)
		}
	}
	if err := checkWritable(dir); err != nil {
		return nil, fmt.Errorf("%w: %v", backend.ErrReadOnly, err)
	}
	c := &claim{}
	if c.dir, err = lockDir(dir, lock); err != nil {
		return nil, err
	}
	if err := c.take(dir, ours); err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

// take locks the marker of a directory that is locked, and writes it first where there is none.
func (c *claim) take(dir string, ours bool) (err error) {
	if !ours {
		if err := writeMarker(dir); err != nil {
			return dirError(err)
		}
	}
	if c.marker, err = os.OpenFile(filepath.Join(dir, markerName), os.O_RDWR, 0); err != nil {
		return dirError(err)
	}
	if err := lock(c.marker); err != nil {
		return err
	}
	removeTemps(dir)
	if c.id, _, err = readMarker(dir); err != nil { // that of another process may have won
		return err
	}
	return dirError(removeUnborn(dir))
}

// release gives the directory up; closing the files unlocks it.
func (c *claim) release() {
	c.marker.Close()
	c.dir.Close()
}

// lockDir opens a directory and locks it, where directories can be locked; elsewhere the marker
// alone is.
func lockDir(dir string, lock func(*os.File) error) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, dirError(err)
	}
	if !locksDirs {
		return f, nil
	}
	if err := lock(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readMarker reports whether dir has the marker of this driver and format, and the id in it.
func readMarker(dir string) (id commitlog.ID, ours bool, err error) {
	if info, err := os.Stat(dir); err != nil {
		return id, false, dirError(err)
	} else if !info.IsDir() {
		return id, false, fmt.Errorf("%w: not a directory", backend.ErrForeign)
	}
	text, err := durable.ReadFile(filepath.Join(dir, markerName), mostMarker)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return id, false, nil
	case errors.Is(err, durable.ErrNotRegular) || errors.Is(err, durable.ErrTooLarge):
		return id, true, fmt.Errorf("%w: %v", backend.ErrCorrupt, err)
	case err != nil:
		return id, false, dirError(err)
	}
	id, err = parseMarker(string(text))
	return id, true, err
}

// marker is the content of the marker file: program, driver, version, id of the directory.
func marker(id commitlog.ID) string {
	return fmt.Sprintf("ckptd %s %d %x\n", driverName, formatVersion, id)
}

func parseMarker(text string) (id commitlog.ID, err error) {
	driver, ok := strings.CutPrefix(text, "ckptd ")
	if !ok {
		return id, fmt.Errorf("%w: its %s file belongs to another program", backend.ErrForeign, markerName)
	}
	rest, ok := strings.CutPrefix(driver, driverName+" ")
	if !ok {
		return id, fmt.Errorf("%w: it belongs to another driver", backend.ErrForeign)
	}
	number, _, _ := strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
	version, err := strconv.Atoi(number)
	switch {
	case err != nil || version < 1 || strconv.Itoa(version) != number || !strings.HasSuffix(rest, "\n"):
	case version > formatVersion:
		return id, fmt.Errorf("%w: format %d, this version reads up to %d", backend.ErrNewerFormat, version, formatVersion)
	case version < formatVersion:
		return id, fmt.Errorf("%w: format %d, from before the commit log", backend.ErrOlderFormat, version)
	default:
		b, _ := hex.DecodeString(strings.TrimSuffix(strings.TrimPrefix(rest, number+" "), "\n"))
		copy(id[:], b)
		if marker(id) == text {
			return id, nil
		}
	}
	return id, fmt.Errorf("%w: its %s file is damaged", backend.ErrCorrupt, markerName)
}

// checkEmpty refuses a directory that holds anything but the leftovers of a file system or of an
// interrupted writeMarker.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return dirError(err)
	}
	for _, e := range entries {
		if name := e.Name(); name != "lost+found" && !strings.HasPrefix(name, markerTemp) {
			return fmt.Errorf("%w: the directory holds %q and no %s file", backend.ErrForeign, name, markerName)
		}
	}
	return nil
}

// writeMarker creates the marker whole and durably, in a directory whose name is durable before. If
// another process was faster its marker stays: a link, unlike a rename, does not replace a file,
// which may be locked.
func writeMarker(dir string) error {
	if err := durable.SyncPath(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, markerTemp)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	var id commitlog.ID
	rand.Read(id[:])
	_, err = f.WriteString(marker(id))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	path := filepath.Join(dir, markerName)
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		if err := os.Rename(f.Name(), path); err != nil { // a file system without links
			return err
		}
	}
	return durable.SyncDir(dir)
}

func removeTemps(dir string) {
	temps, _ := filepath.Glob(filepath.Join(dir, markerTemp+"*"))
	for _, name := range temps {
		_ = os.Remove(name) // harmless where it stays
	}
}

// removeUnborn removes logs without a byte, which a process leaves that was killed between creating
// one and giving it its size. Nothing was ever written to them, but Badger takes them for damage
// the first time it sees them.
func removeUnborn(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".mem" && ext != ".vlog" {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Size() > 0 {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return durable.SyncDir(dir)
}

// checkFiles refuses a store whose MANIFEST is gone. Badger would start an empty one and delete the
// tables.
func checkFiles(dir string, find place) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return dirError(err)
	}
	data := ""
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".sst", ".mem":
			data = e.Name()
		}
	}
	_, err = os.Lstat(find(badgerdb.ManifestFilename))
	if data != "" && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is %s, but the MANIFEST is missing", backend.ErrCorrupt, data)
	}
	return gone(err)
}

// dirError classifies an error of the file system about the directory or the marker.
func dirError(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range systemCauses {
		if strings.Contains(err.Error(), c.text) {
			return fmt.Errorf("%w: %v", c.is, err)
		}
	}
	return err
}
