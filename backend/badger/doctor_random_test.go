package badger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/backend/commitlog"
	"github.com/ckptd/ckptd/internal/durable"
)

// A patient is a directory with all that a store in it ever held.
type patient struct {
	name, dir string
	at        map[uint64]oracle // by the number of the group
	last      uint64
	pos       map[uint64]commitlog.Position
	ever      map[string]bool // key and value
}

// commit commits a random group: of one key or two, written or deleted.
func (p *patient) commit(t *testing.T, s *Store, rnd *rand.Rand) {
	t.Helper()
	now, b := maps.Clone(p.at[p.last]), backend.Batch{}
	keys := []string{"counter", fmt.Sprintf("key-%02d", rnd.IntN(30))}
	for _, key := range keys[rnd.IntN(2):] {
		if rnd.IntN(5) == 0 {
			b.Muts = append(b.Muts, backend.Mut{Key: []byte(key), Delete: true})
			delete(now, key)
			continue
		}
		value := fmt.Sprint(p.last+1, " ", randomText(rnd, rnd.IntN(3000)))
		b.Muts = append(b.Muts, single(key, value).Muts...)
		now[key], p.ever[key+"="+value] = value, true
	}
	if err := s.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	p.last = s.logs.Last().N
	p.at[p.last], p.pos[p.last] = now, s.logs.Last()
}

// copied is the patient with a copy of another directory.
func (p patient) copied(name, dir string) patient {
	p.name, p.dir, p.at, p.pos, p.ever = name, dir, maps.Clone(p.at), maps.Clone(p.pos), maps.Clone(p.ever)
	return p
}

// patients are a store that was killed, the same when it was closed, when an opening was cut short
// and left copies, and behind a loss that was accepted; and two other directories whose files get
// mixed in: the first as it was some groups before, and that of another store.
func patients(t *testing.T, rnd *rand.Rand) (ps []patient, strange []string) {
	t.Helper()
	s := openSmall(t)
	p := patient{dir: s.dir, at: map[uint64]oracle{0: {}}, pos: map[uint64]commitlog.Position{}, ever: map[string]bool{}}
	for range 20 {
		p.commit(t, s, rnd)
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		p.commit(t, s, rnd)
	}
	awaitAnchor(t, s)
	older := killed(t, s.dir)
	for range 20 {
		p.commit(t, s, rnd)
	}
	awaitAnchor(t, s)
	killedOne := p.copied("killed", killed(t, s.dir))
	segment := filepath.Join(logDir, s.logs.Segment())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	interrupted := damaged(t, killedOne.dir, func(dir string) error {
		err := errors.Join(setAside(dir, true), keepTables(dir, func(int64) error { return nil }))
		tables, failed := filesIn(dir, ".sst")
		for _, path := range tables {
			err = errors.Join(err, replaceByCopy(path))
		}
		return errors.Join(err, failed)
	})
	accepted := p.copied("accepted", withoutEnd(t, killedOne.dir, segment))
	a, err := AcceptLoss(accepted.dir, least)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = Open(accepted.dir, least); err != nil {
		t.Fatal(err)
	}
	for accepted.last = a.Now.N; accepted.last < a.Now.N+10; {
		accepted.commit(t, s, rnd)
	}
	awaitAnchor(t, s)
	accepted.dir = killed(t, s.dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other, _, _ := crashed(t)
	return []patient{killedOne, p.copied("closed", p.dir), p.copied("interrupted", interrupted), accepted}, []string{older, other}
}

// ail damages a file of a store, or its log as a whole, and says how.
func ail(t *testing.T, rnd *rand.Rand, dir string, strange []string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch base := filepath.Base(name); {
		case err != nil || base == "DISCARD" || base == "LOCK" || strings.HasPrefix(base, ballastName) || filepath.Ext(base) == ".vlog":
		case !e.IsDir() || base == logDir:
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name := names[rnd.IntN(len(names))]
	path := filepath.Join(dir, name)
	content, _ := os.ReadFile(path)
	how := []string{"removed", "a folder", "another's", "older", "flipped", "cut short", "a hole"}[rnd.IntN(7)]
	written := max(used(content), 1)
	switch from := strange[0]; {
	case how == "removed":
		err = os.RemoveAll(path)
	case how == "a folder":
		err = errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700))
	case how == "another's" && filepath.Ext(name) == ".sst": // the seals of its values tell
		how = "as it was"
	case how == "another's" || how == "older":
		if how == "another's" {
			from = strange[1]
		}
		err = putFrom(filepath.Join(from, name), path)
	case len(content) == 0: // a folder, or nothing in it
		how, err = "as it was", nil
	case how == "flipped":
		flip(t, path, rnd.IntN(written), 1<<rnd.IntN(8))
	case how == "cut short":
		err = os.Truncate(path, int64(rnd.IntN(written)))
	default:
		at := rnd.IntN(written)
		clear(content[at:min(at+1+rnd.IntN(2000), len(content))])
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name + ": " + how
}

// putFrom replaces a file or folder, if there is one to replace it by.
func putFrom(from, path string) error {
	info, err := os.Stat(from)
	if err != nil {
		return gone(err)
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(path, os.DirFS(from))
	}
	content, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(path, content, 0o600))
}

// TestDoctorAnything damages stores in one or two random ways and has each way of the doctor go at
// them. One damage is repaired, or lost groups are accepted and the store is as it was behind the
// last one that is left, or what is salvaged is all or says what is missing. Two can hide each
// other; nothing wrong is held all the same.
func TestDoctorAnything(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 25
	}
	did := map[string]int{}
	for seed := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(71, seed))
		if seed%20 == 0 {
			doctorPatients, doctorStrange = patients(t, rnd)
		}
		p := doctorPatients[rnd.IntN(len(doctorPatients))]
		dir := filepath.Join(t.TempDir(), "data")
		copyStore(t, p.dir, dir)
		ails := []string{ail(t, rnd, dir, doctorStrange)}
		if rnd.IntN(4) == 0 {
			ails = append(ails, ail(t, rnd, dir, doctorStrange))
		}
		d, err := Diagnose(dir, least)
		says := fmt.Sprintf("%v", err)
		if err == nil {
			says = fmt.Sprintf("%s, damage %q, repairs %q, lost %v", d.Outcome, d.Damage, d.Repairs, d.Lost)
		}
		c := doctorCase{patient: p, dir: dir, strict: len(ails) == 1, refuses: err != nil || d.Outcome == OpensNot}
		for _, action := range []func(*testing.T, *rand.Rand) (string, error){c.salvage, c.acceptLoss, c.repair} {
			what, err := action(t, rnd)
			if err != nil {
				t.Errorf("seed %d: %s, %q: %s: %v (%s)", seed, p.name, ails, what, err, says)
				break
			}
			did[what]++
			if what == "accepted" {
				break
			}
		}
	}
	t.Log(did)
	for _, what := range []string{"salvaged all", "salvaged some", "accepted", "accepted nothing", "repaired", "not repaired"} {
		if did[what] == 0 {
			t.Errorf("none was %s", what)
		}
	}
}

var (
	doctorPatients []patient
	doctorStrange  []string
)

type doctorCase struct {
	patient
	dir             string
	strict, refuses bool
}

// holds compares a store with what it held behind a group, or only looks for what it never held.
func (c doctorCase) holds(dir string, behind uint64, strictly bool) error {
	s, err := Open(dir, least)
	if err != nil {
		return err
	}
	defer s.Close()
	for r := (backend.Range{Limit: 10_000}); ; {
		page, next, err := s.Scan(context.Background(), r)
		if err != nil {
			return err
		}
		for _, e := range page {
			if !c.ever[string(e.Key)+"="+string(e.Value)] {
				return fmt.Errorf("%s has a value that it never had", e.Key)
			}
		}
		if r.Start = next; next == nil {
			break
		}
	}
	if diff := c.at[behind].differs(s); strictly && diff != "" {
		return errors.New(diff)
	}
	return nil
}

func (c doctorCase) salvage(t *testing.T, _ *rand.Rand) (string, error) {
	to := filepath.Join(t.TempDir(), "new")
	before := contents(t, c.dir)
	r, err := Salvage(c.dir, to, least)
	if !maps.Equal(before, contents(t, c.dir)) {
		return "salvaging", errors.New("something changed")
	}
	if err != nil {
		if c.strict && !notAStore(err) {
			return "salvaging", err
		}
		return "not salvaged", nil
	}
	all := len(r.Missing) == 0 && r.Lost == nil
	if err := c.holds(to, c.last, all && c.strict); err != nil {
		return "salvaged", fmt.Errorf("%w; missing %q, lost %v", err, r.Missing, r.Lost)
	}
	if all {
		return "salvaged all", nil
	}
	return "salvaged some", nil
}

// notAStore says that nothing can be said of a directory, by what its marker says.
func notAStore(err error) bool {
	return slices.ContainsFunc([]error{backend.ErrForeign, backend.ErrNewerFormat, backend.ErrOlderFormat, backend.ErrCorrupt}, func(is error) bool {
		return errors.Is(err, is)
	})
}

func (c doctorCase) acceptLoss(t *testing.T, _ *rand.Rand) (string, error) {
	before := contents(t, c.dir)
	a, err := AcceptLoss(c.dir, least)
	if err != nil {
		if !c.refuses && !errors.Is(err, backend.ErrInvalid) && !errors.Is(err, durable.ErrNotRegular) {
			return "accepting", err
		}
		if c.name != "interrupted" && !maps.Equal(before, contents(t, c.dir)) {
			return "accepting", fmt.Errorf("something changed: %w", err)
		}
		return "accepted nothing", nil
	}
	if d, err := Diagnose(a.Evidence, least); err != nil || d.Outcome != OpensNot {
		return "accepted", fmt.Errorf("the evidence: %+v, %v", d, err)
	}
	if d, err := Diagnose(c.dir, least); err != nil || d.Outcome != OpensClean || d.Stands != a.Now {
		return "accepted", fmt.Errorf("%+v, %v", d, err)
	}
	if was := c.pos[a.Now.N]; c.strict && (a.Now.Incarnation == c.pos[c.last].Incarnation || a.Now.N > 0 && a.Now.Hash != was.Hash) {
		return "accepted", fmt.Errorf("it goes on behind %+v", a.Now)
	}
	return "accepted", c.holds(c.dir, a.Now.N, c.strict)
}

func (c doctorCase) repair(t *testing.T, _ *rand.Rand) (string, error) {
	_, err := Repair(c.dir, least)
	if err != nil {
		if !c.refuses && !errors.Is(err, durable.ErrNotRegular) { // a folder is not replaced
			return "repairing", err
		}
		if _, err := Open(c.dir, least); err == nil {
			return "not repaired", errors.New("and it is opened")
		}
		return "not repaired", nil
	}
	if again, err := Repair(c.dir, least); err != nil || len(again) > 0 {
		return "repaired", fmt.Errorf("once more: %q, %v", again, err)
	}
	if d, err := Diagnose(c.dir, least); err != nil || d.Outcome != OpensClean || c.strict && d.Stands != c.pos[c.last] {
		return "repaired", fmt.Errorf("%+v, %v", d, err)
	}
	return "repaired", c.holds(c.dir, c.last, c.strict)
}
