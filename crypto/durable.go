package crypto

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ckptd/ckptd/internal/durable"
)

// Put implements Keystore: it writes and syncs a temporary file, renames it, and syncs the folder.
// It overwrites the bytes of the old entry, though media that write elsewhere (flash, copy-on-write
// file systems) may keep them.
func (s *FileKeystore) Put(ctx context.Context, name string, old, new []byte) error {
	if err := checkEntry(name, new); err != nil {
		return err
	}
	if err := s.usable(ctx, name); err != nil {
		return err
	}
	path := s.path(name)
	defer s.begin(path)()
	if err := s.put(path, old, new); err != nil {
		return fmt.Errorf("writing keystore entry %s: %w", name, err)
	}
	return nil
}

func (s *FileKeystore) put(path string, old, new []byte) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	current, err := readLimited(path, maxEntry)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !matches(current, old) {
		return ErrKeystoreConflict
	}
	var replaced *os.File // keeps the old bytes reachable when their name is gone
	if old != nil {
		if replaced, err = durable.Open(path, os.O_WRONLY); err != nil {
			return err
		}
		defer replaced.Close()
	}
	temp, err := s.writeTemp(new)
	if err == nil {
		err = s.makeFolders(filepath.Dir(path))
	}
	if err == nil {
		err = s.rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		return err
	}
	if err := s.syncNames(filepath.Dir(path)); err != nil {
		return err
	}
	if replaced != nil {
		return s.overwrite(replaced, len(old))
	}
	return nil
}

// Delete implements Keystore: it renames the file to a temporary name, overwrites and removes it,
// so that a crash leaves no half-erased entry in its place. The caveat about media at Put applies
// here, too.
func (s *FileKeystore) Delete(ctx context.Context, name string) error {
	if err := s.usable(ctx, name); err != nil {
		return err
	}
	path := s.path(name)
	defer s.begin(path)()
	if err := s.delete(path); err != nil {
		return fmt.Errorf("deleting keystore entry %s: %w", name, err)
	}
	return nil
}

func (s *FileKeystore) delete(path string) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	folder := filepath.Dir(path)
	temp := s.tempName()
	if err := s.rename(path, temp); errors.Is(err, fs.ErrNotExist) {
		return s.syncPath(folder)
	} else if err != nil {
		return err
	}
	if err := s.syncNames(folder); err != nil {
		return err
	}
	if err := s.shred(temp); err != nil {
		return err
	}
	return s.syncNames(s.dir)
}

// lock keeps other processes from writing until unlock is called.
func (s *FileKeystore) lock() (unlock func() error, err error) {
	f, err := durable.Open(filepath.Join(s.dir, markerName), os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking the keystore: %w", err)
	}
	return f.Close, nil
}

func (s *FileKeystore) tempName() string {
	return filepath.Join(s.dir, tempPrefix+rand.Text())
}

// writeTemp writes a new file whose content is durable.
func (s *FileKeystore) writeTemp(content []byte) (path string, err error) {
	path = s.tempName()
	if err := s.step("write", path); err != nil {
		return path, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return path, err
	}
	_, err = f.Write(content)
	if err == nil {
		err = s.sync(f)
	}
	return path, errors.Join(err, f.Close())
}

// shred overwrites and removes a file.
func (s *FileKeystore) shred(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() {
		f, err := durable.Open(path, os.O_WRONLY)
		if err != nil {
			return err
		}
		if err := errors.Join(s.overwrite(f, int(min(info.Size(), maxEntry))), f.Close()); err != nil {
			return err
		}
	}
	if err := s.step("remove", path); err != nil {
		return err
	}
	return os.Remove(path)
}

// overwrite durably replaces the first n bytes of a file by random ones.
func (s *FileKeystore) overwrite(f *os.File, n int) error {
	if err := s.step("overwrite", f.Name()); err != nil {
		return err
	}
	noise := make([]byte, n)
	rand.Read(noise)
	if _, err := f.WriteAt(noise, 0); err != nil {
		return err
	}
	return s.sync(f)
}

func (s *FileKeystore) rename(from, to string) error {
	if err := s.step("rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

func (s *FileKeystore) sync(f *os.File) error {
	if err := s.step("sync", f.Name()); err != nil {
		return err
	}
	return f.Sync()
}

// makeFolders durably creates the folders from the keystore's directory down to folder.
func (s *FileKeystore) makeFolders(folder string) error {
	if folder == s.dir {
		return nil
	}
	parent := filepath.Dir(folder)
	if err := s.makeFolders(parent); err != nil {
		return err
	}
	if err := s.step("mkdir", folder); err != nil {
		return err
	}
	err := os.Mkdir(folder, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return s.syncOnce(parent)
	}
	if err != nil {
		return err
	}
	return s.syncNames(parent)
}

// syncNames makes the names in a folder durable. A failure disables the keystore.
func (s *FileKeystore) syncNames(folder string) error {
	err := s.step("syncdir", folder)
	if err == nil {
		err = durable.SyncDir(folder)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return err // without the folder there are no names to sync
	}
	if err != nil {
		s.failed.CompareAndSwap(nil, &err)
		return err
	}
	s.synced.Store(folder, true)
	return nil
}

// syncOnce is syncNames for names that this process has not changed since it synced them.
func (s *FileKeystore) syncOnce(folder string) error {
	if _, ok := s.synced.Load(folder); ok {
		return nil
	}
	return s.syncNames(folder)
}

// syncPath makes all names durable from the keystore's directory down into folder.
func (s *FileKeystore) syncPath(folder string) error {
	if folder != s.dir {
		if err := s.syncPath(filepath.Dir(folder)); err != nil {
			return err
		}
	}
	err := s.syncOnce(folder)
	if errors.Is(err, fs.ErrNotExist) { // an absent entry in an absent folder
		return nil
	}
	return err
}

func (s *FileKeystore) step(step, path string) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(step, path)
}
