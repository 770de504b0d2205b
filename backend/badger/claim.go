package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/internal/durable"
)

const (
	markerName = "CKPTD"
	markerTemp = "CKPTD.tmp" // prefix of markers being written
	driverName = "badger"
	// formatVersion numbers what this driver does with its directory. It only ever grows.
	formatVersion = 1
)

// claim is the hold on a directory: its marker file, locked.
type claim struct{ marker *os.File }

// claimDir makes sure that dir is a store of this driver, making it one if it is empty and create is set, and locks
// it. It changes nothing in a directory that is not ours.
func claimDir(dir string, create bool) (*claim, error) {
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, dirError(err)
		}
	}
	ours, err := readMarker(dir)
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
	if !ours {
		if err := writeMarker(dir); err != nil {
			return nil, dirError(err)
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, markerName), os.O_RDWR, 0)
	if err != nil {
		return nil, dirError(err)
	}
	if err := lock(f); err != nil {
		f.Close()
		return nil, err
	}
	removeTemps(dir)
	if err := removeUnborn(dir); err != nil {
		f.Close()
		return nil, dirError(err)
	}
	return &claim{f}, nil
}

// release gives the directory up; closing the marker unlocks it.
func (c *claim) release() { c.marker.Close() }

// readMarker reports whether dir has the marker of this driver and format.
func readMarker(dir string) (bool, error) {
	if info, err := os.Stat(dir); err != nil {
		return false, dirError(err)
	} else if !info.IsDir() {
		return false, fmt.Errorf("%w: not a directory", backend.ErrForeign)
	}
	text, err := os.ReadFile(filepath.Join(dir, markerName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, dirError(err)
	}
	return true, checkMarker(string(text))
}

// marker is the content of the marker file: program, driver, version.
func marker(version int) string { return fmt.Sprintf("ckptd %s %d\n", driverName, version) }

func checkMarker(text string) error {
	if text == marker(formatVersion) {
		return nil
	}
	driver, ok := strings.CutPrefix(text, "ckptd ")
	if !ok {
		return fmt.Errorf("%w: its %s file is another program's", backend.ErrForeign, markerName)
	}
	number, ok := strings.CutPrefix(driver, driverName+" ")
	if !ok {
		return fmt.Errorf("%w: it belongs to another driver", backend.ErrForeign)
	}
	version, err := strconv.Atoi(strings.TrimSuffix(number, "\n"))
	if err != nil || text != marker(version) || version <= formatVersion {
		return fmt.Errorf("%w: its %s file is damaged", backend.ErrCorrupt, markerName)
	}
	return fmt.Errorf("%w: format %d, known up to %d", backend.ErrNewerFormat, version, formatVersion)
}

// checkEmpty refuses a directory that holds anything but what a file system or an interrupted writeMarker leaves.
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

// writeMarker creates the marker whole and durably, in a directory whose name is durable before. If another process was
// faster its marker stays: a link, unlike a rename, does not replace what is there, and with it what is locked.
func writeMarker(dir string) error {
	if err := durable.SyncPath(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, markerTemp)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(marker(formatVersion))
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

// removeUnborn removes logs without a byte, which a process leaves that was killed between creating one and giving it its
// size. Nothing was ever written to them, but Badger takes them for damage the first time it sees them.
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

// checkFiles refuses a store whose MANIFEST is gone. Badger would start an empty one and delete the tables.
func checkFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return dirError(err)
	}
	manifest, data := false, ""
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".sst", ".mem":
			data = e.Name()
		}
		manifest = manifest || e.Name() == "MANIFEST"
	}
	if data != "" && !manifest {
		return fmt.Errorf("%w: there is %s and no MANIFEST", backend.ErrCorrupt, data)
	}
	return nil
}

// dirError classifies an error of the file system about the directory or the marker.
func dirError(err error) error {
	for _, c := range systemCauses {
		if strings.Contains(err.Error(), c.text) {
			return fmt.Errorf("%w: %v", c.is, err)
		}
	}
	return err
}
