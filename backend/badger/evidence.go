package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ckptd/ckptd/internal/durable"
)

// evidenceNew ends the name of evidence that is not complete.
const evidenceNew = ".new"

// keepEvidence copies a directory to a new one next to it, with links to files that are never
// written to again. Links in the directory and to it are followed. At least minFree bytes stay free
// on the device.
func keepEvidence(dir string, minFree int64) (to string, err error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", dirError(err)
	}
	if base := filepath.Base(real); base == "." || base == ".." { // which names nothing to put it next to
		if real, err = filepath.Abs(real); err != nil {
			return "", dirError(err)
		}
	}
	if to, err = evidenceName(real); err != nil {
		return "", err
	}
	temp := to + evidenceNew
	room := func(size int64) error { return (&space{dir: temp, minFree: minFree}).require(size) }
	if err = copyEvidence(real, temp, room); err == nil {
		err = os.Rename(temp, to)
	}
	if err == nil {
		err = durable.SyncDir(filepath.Dir(to))
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("keeping the evidence in %s: %w", to, dirError(err)), os.RemoveAll(temp))
	}
	return to, nil
}

// evidenceName is a name that is free, and makes the directory under the name of one that is not
// complete.
func evidenceName(dir string) (string, error) {
	base := dir + ".lost-" + time.Now().UTC().Format("20060102T150405Z")
	for i, to := 1, base; ; i, to = i+1, fmt.Sprintf("%s-%d", base, i+1) {
		err := os.Mkdir(to+evidenceNew, 0o700)
		if err == nil {
			if _, err = os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
				return to, nil
			}
			os.Remove(to + evidenceNew)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("keeping the evidence in %s: %w", to, dirError(err))
		}
	}
}

// copyEvidence copies the files of a directory and of the driver's directories in it. What else is
// there stays where it is.
func copyEvidence(from, to string, room func(int64) error) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a link that leads nowhere
		}
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			if !slices.Contains([]string{logDir, asideDir, asideNew, keptDir, keptNew}, e.Name()) {
				continue
			}
			if err = os.Mkdir(target, 0o700); err == nil {
				err = copyEvidence(path, target, room)
			}
		case !info.Mode().IsRegular() || strings.HasPrefix(e.Name(), ballastName):
		case slices.Contains([]string{".sst", ".seg", memorySuffix, asideSuffix}, filepath.Ext(path)) && e.Type().IsRegular():
			err = link(path, target, room)
		default:
			if err = room(info.Size()); err == nil {
				err = copyFile(path, target)
			}
		}
		if err != nil {
			return err
		}
	}
	return durable.SyncDir(to)
}
