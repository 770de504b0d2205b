package rival

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ckptd/ckptd/bench/workload"
)

func filesRival() Rival {
	return Rival{
		Name: "files", What: "one file per state in one folder per thread, written under a temporary name and renamed",
		Durable: "fsync of the file and of its folder", Default: "no fsync", Whole: true,
		Open: func(_ context.Context, o Options) (Driver, error) { return &files{o.Dir, o.Durable}, nil },
	}
}

type files struct {
	dir  string
	sync bool
}

// folder spreads threads over folders of a thousand each.
func (f *files) folder(thread int) string {
	return filepath.Join(f.dir, fmt.Sprint(thread/1000), fmt.Sprint(thread))
}

func (f *files) Save(_ context.Context, s *workload.Step) error {
	dir := f.folder(s.Thread)
	if s.Parent < 0 {
		if err := f.makeFolder(dir); err != nil {
			return err
		}
	}
	name := filepath.Join(dir, fmt.Sprintf("%012d.json", s.Number))
	file, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(s.State.Doc)
	if err == nil && f.sync {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	return f.syncFolder(dir)
}

func (f *files) makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for range 3 { // the folders of the thread, the thousand and the store
		dir = filepath.Dir(dir)
		if err := f.syncFolder(dir); err != nil || dir == f.dir {
			return err
		}
	}
	return nil
}

func (f *files) syncFolder(dir string) error {
	if !f.sync {
		return nil
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

func (f *files) Load(_ context.Context, thread, step int) ([]byte, error) {
	dir := f.folder(thread)
	if step >= 0 {
		return os.ReadFile(filepath.Join(dir, fmt.Sprintf("%012d.json", step)))
	}
	list, err := os.ReadDir(dir) // ordered by name
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errMissing
	}
	return os.ReadFile(filepath.Join(dir, list[len(list)-1].Name()))
}

func (f *files) Settle(context.Context) error { return nil }
func (f *files) Process() int                 { return 0 }
func (f *files) Close() error                 { return nil }
