package badger

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
)

var least = Options{MemTableSize: leastMemTable}

// damaged is a copy of a store in which something was changed.
func damaged(t *testing.T, base string, change func(dir string) error) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	copyStore(t, base, dir)
	if err := change(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// diagnoseOnly wants a diagnosis to change nothing.
func diagnoseOnly(t *testing.T, dir string) *Diagnosis {
	t.Helper()
	before := contents(t, dir)
	d, err := Diagnose(dir, least)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, contents(t, dir)) {
		t.Fatal("it changed something")
	}
	return d
}

func TestDiagnose(t *testing.T) {
	base, segment, want := crashed(t)
	other, _, _ := crashed(t)
	clean := damaged(t, base, func(dir string) error {
		want.reopen(t, dir)
		return nil
	})
	remove := func(names ...string) func(string) error {
		return func(dir string) (err error) {
			for _, name := range names {
				err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
			}
			return err
		}
	}
	flipped := func(at map[string]int) func(string) error {
		return func(dir string) error {
			for name, at := range at {
				b, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					return err
				}
				if at < 0 {
					at += used(b)
				}
				flip(t, filepath.Join(dir, name), at, 1)
			}
			return nil
		}
	}
	for name, tt := range map[string]struct {
		base    string
		change  func(string) error
		outcome Outcome
		says    string // a repair or a damage
		err     error
		lost    uint64
	}{
		"closed":          {clean, remove(), OpensClean, "", nil, 0},
		"killed":          {base, remove(), OpensReplays, "", nil, 0},
		"a frame":         {base, flipped(map[string]int{segment: 700}), OpensRepairs, "group 21 is missing from the log or damaged in it", nil, 0},
		"the anchor":      {base, remove("log/anchor"), OpensRepairs, "the anchor is damaged", nil, 0},
		"the marker":      {base, flipped(map[string]int{"CKPTD": 3}), OpensNot, "", backend.ErrCorrupt, 0},
		"no marker":       {base, remove("CKPTD"), OpensNot, "the file CKPTD is damaged or missing", backend.ErrCorrupt, 0},
		"the KEYREGISTRY": {base, flipped(map[string]int{"KEYREGISTRY": 20}), OpensRepairs, "the KEYREGISTRY is damaged", nil, 0},
		"the MANIFEST":    {base, flipped(map[string]int{"MANIFEST": -3}), OpensNot, "manifest has checksum mismatch", backend.ErrCorrupt, 0},
		"the MANIFEST but for its head": {base, func(dir string) error { return os.Truncate(filepath.Join(dir, "MANIFEST"), 10) }, OpensNot,
			"the MANIFEST does not name 000002.sst, which has groups up to 20", backend.ErrCorrupt, 0},
		"the MANIFEST but for its head, and a table": {base, func(dir string) error {
			table := filepath.Join(dir, "000002.sst")
			content, err := os.ReadFile(table)
			return errors.Join(err, os.Truncate(filepath.Join(dir, "MANIFEST"), 10), os.Truncate(table, int64(len(content)-2)))
		}, OpensNot, "groups of commits", backend.ErrLostCommits, 0},
		"a table":              {clean, flipped(map[string]int{"000002.sst": 50}), OpensNot, "000002.sst", backend.ErrCorrupt, 0},
		"a table that is gone": {clean, remove("000002.sst"), OpensNot, "the table is missing", backend.ErrCorrupt, 0},
		"the last frame, and its copy": {base, flipped(map[string]int{segment: -10, "00001.mem": -30}), OpensNot,
			"1 group of commits since", backend.ErrLostCommits, 1},
		"no log": {base, remove(logDir), OpensNot, "the log is missing: there is 000002.sst and no log", backend.ErrNoLog, 0},
		"another store's log": {base, func(dir string) error {
			return errors.Join(remove(logDir)(dir), os.CopyFS(filepath.Join(dir, logDir), os.DirFS(filepath.Join(other, logDir))))
		}, OpensNot, "another store", backend.ErrForeignLog, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := diagnoseOnly(t, damaged(t, tt.base, tt.change))
			said := strings.Join(append(d.Repairs, d.Damage...), "; ")
			if d.Outcome != tt.outcome || !errors.Is(d.Err, tt.err) || !strings.Contains(said, tt.says) {
				t.Errorf("%s, %v, %q", d.Outcome, d.Err, said)
			}
			if tt.lost > 0 && (d.Lost == nil || d.Lost.Groups != tt.lost || d.Lost.After != d.Stands || d.Lost.Since().IsZero()) {
				t.Errorf("lost: %v", d.Lost)
			}
			if tt.err == nil && d.Stands.N != 40 {
				t.Errorf("it stands up to %d", d.Stands.N)
			}
		})
	}
}

// A loss is only offered for acceptance where accepting it goes on, and a marker for repair where
// it is known.
func TestDiagnosisOffersWhatWorks(t *testing.T) {
	base, _, _ := crashed(t)
	other, _, _ := crashed(t)
	for name, change := range map[string]func(dir string) error{
		"no log and a damaged table": func(dir string) error {
			flip(t, filepath.Join(dir, "000002.sst"), 50, 1)
			return os.RemoveAll(filepath.Join(dir, logDir))
		},
		"no marker and the log of another store": func(dir string) error {
			log := filepath.Join(dir, logDir)
			return errors.Join(os.RemoveAll(log), os.Remove(filepath.Join(dir, markerName)), os.CopyFS(log, os.DirFS(filepath.Join(other, logDir))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := damaged(t, base, change)
			d := diagnoseOnly(t, dir)
			if d.Outcome != OpensNot || d.Lost != nil || len(d.Repairs) > 0 || !strings.Contains(strings.Join(d.Damage, "; "), "log") {
				t.Errorf("%+v", d)
			}
			before := contents(t, dir)
			_, errRepair := Repair(dir, least)
			_, errAccept := AcceptLoss(dir, least)
			if errRepair == nil || errAccept == nil || !maps.Equal(before, contents(t, dir)) {
				t.Errorf("repairing: %v, accepting: %v, or something changed", errRepair, errAccept)
			}
		})
	}
}

// What is no store, or cannot be looked at now, is an error of its own.
func TestDiagnoseRefuses(t *testing.T) {
	s := openSmall(t)
	if _, err := Diagnose(s.dir, least); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("in use: %v", err)
	}
	write(t, s, "still", "there") // and nothing was taken from who uses it
	for what, text := range map[string]string{"a photo": "photo.jpg", "nothing": "", "a newer one": markerName} {
		dir, want := t.TempDir(), backend.ErrForeign
		switch text {
		case "":
			want = fs.ErrNotExist
		case markerName:
			want = backend.ErrNewerFormat
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, text), []byte("ckptd badger 9 x\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Diagnose(dir, least); !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Diagnose(filepath.Join(s.dir, "none"), least); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// A diagnosis says what opening then does, whatever bit is flipped.
func TestDiagnosisForetells(t *testing.T) {
	base, _, want := crashed(t)
	rnd := rand.New(rand.NewPCG(31, 32))
	each := 8
	if testing.Short() {
		each = 3
	}
	for _, kind := range []string{"log/*.seg", "*.mem", "log/anchor", "*.sst", "MANIFEST", "KEYREGISTRY", "CKPTD"} {
		paths, _ := filepath.Glob(filepath.Join(base, kind))
		for range each {
			path := paths[rnd.IntN(len(paths))]
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if used(content) == 0 {
				continue
			}
			at, bit := rnd.IntN(used(content)), byte(1)<<rnd.IntN(8)
			rel, _ := filepath.Rel(base, path)
			dir := damaged(t, base, func(dir string) error {
				flip(t, filepath.Join(dir, rel), at, bit)
				return nil
			})
			refuses := true
			if d, err := Diagnose(dir, least); err == nil {
				refuses = d.Outcome == OpensNot
			}
			s, err := Open(dir, least)
			if (err != nil) != refuses {
				t.Errorf("byte %d of %s: refusing was foretold: %v, and opening gave %v", at, rel, refuses, err)
			}
			if err == nil {
				if diff := want.differs(s); diff != "" {
					t.Error(diff)
				}
				s.Close()
			}
		}
	}
}

func TestRepair(t *testing.T) {
	base, segment, want := crashed(t)
	for name, change := range map[string]func(string) error{
		"a frame":         func(dir string) error { flip(t, filepath.Join(dir, segment), 700, 1); return nil },
		"no marker":       func(dir string) error { return os.Remove(filepath.Join(dir, markerName)) },
		"the KEYREGISTRY": func(dir string) error { flip(t, filepath.Join(dir, "KEYREGISTRY"), 20, 1); return nil },
		"a table of an opening that was cut short": func(dir string) error {
			return errors.Join(setAside(dir, true), keepTables(dir, func(int64) error { return nil }), os.Remove(filepath.Join(dir, "000002.sst")))
		},
		"a damaged table of an opening that was cut short": func(dir string) error {
			err := errors.Join(setAside(dir, true), keepTables(dir, func(int64) error { return nil }), replaceByCopy(filepath.Join(dir, "000002.sst")))
			flip(t, filepath.Join(dir, "000002.sst"), 50, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := damaged(t, base, change)
			if d := diagnoseOnly(t, dir); len(d.Repairs) == 0 {
				t.Errorf("nothing to repair was seen: %+v", d)
			}
			mended, err := Repair(dir, least)
			if err != nil || len(mended) == 0 {
				t.Fatalf("%q, %v", mended, err)
			}
			if d := diagnoseOnly(t, dir); d.Outcome != OpensClean {
				t.Errorf("afterwards: %+v", d)
			}
			want.reopen(t, dir)
		})
	}
}

// A loss that is accepted ends the incarnation, and nothing else is lost. What there was is beside
// the directory.
func TestAcceptLoss(t *testing.T) {
	base, segment, want := crashed(t)
	other, _, _ := crashed(t)
	older := damaged(t, base, func(dir string) error {
		_, err := Repair(dir, least)
		return err
	})
	last := maps.Clone(want)
	delete(last, "key-29")
	last["counter"] = "28"
	for name, tt := range map[string]struct {
		change func(string) error
		want   oracle
		groups uint64
	}{
		"the last group": {func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, segment))
			flip(t, filepath.Join(dir, segment), used(b)-10, 1)
			zeroFrom(t, filepath.Join(dir, "00001.mem"), 0)
			return err
		}, last, 1},
		"no log": {func(dir string) error { return os.RemoveAll(filepath.Join(dir, logDir)) }, want, 0},
		"another store's log": {func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, logDir)),
				os.CopyFS(filepath.Join(dir, logDir), os.DirFS(filepath.Join(other, logDir))))
		}, want, 0},
		"no log, nor tables": {func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, logDir)), os.Remove(filepath.Join(dir, "MANIFEST")),
				os.Remove(filepath.Join(dir, "000002.sst")), os.Remove(filepath.Join(dir, "00001.mem")))
		}, oracle{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := damaged(t, base, tt.change)
			before, was := contents(t, dir), diagnoseOnly(t, dir)
			a, err := AcceptLoss(dir, least)
			if err != nil {
				t.Fatal(err)
			}
			if a.Lost.Groups != tt.groups || a.Now.Incarnation == was.Stands.Incarnation {
				t.Errorf("lost %v, now %+v", a.Lost, a.Now)
			}
			kept := map[string]string{}
			for path, content := range contents(t, a.Evidence) {
				rel, _ := filepath.Rel(a.Evidence, path)
				kept[filepath.Join(dir, rel)] = content
			}
			if !maps.Equal(before, kept) {
				t.Error("the evidence is not what there was")
			}
			now := diagnoseOnly(t, dir)
			if now.Outcome != OpensClean || now.Stands != a.Now || now.Anchor != a.Now {
				t.Errorf("afterwards: %+v", now)
			}
			tt.want.reopen(t, dir)
			if _, err := AcceptLoss(dir, least); !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("once more: %v", err)
			}
		})
	}
	t.Run("and is cut short", func(t *testing.T) { // after the tables have the new incarnation, and before the log has
		dir := damaged(t, base, func(string) error { return nil })
		s, err := Open(dir, least)
		if err != nil {
			t.Fatal(err)
		}
		txn := s.db.NewTransaction(true)
		at := s.logs.Last()
		at.Incarnation = commitlog.ID{1}
		if err := errors.Join(txn.Set(positionName, appendPosition(nil, at)), txn.Commit(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, least); !errors.Is(err, backend.ErrLostCommits) {
			t.Errorf("opening: %v", err)
		}
		if _, err := AcceptLoss(dir, least); err != nil {
			t.Fatal(err)
		}
		want.reopen(t, dir)
	})
	t.Run("a damaged table", func(t *testing.T) {
		dir := damaged(t, older, func(dir string) error { flip(t, filepath.Join(dir, "000002.sst"), 50, 1); return nil })
		before := contents(t, dir)
		if _, err := AcceptLoss(dir, least); !errors.Is(err, backend.ErrCorrupt) || !maps.Equal(before, contents(t, dir)) {
			t.Errorf("%v, or something changed", err)
		}
	})
}
