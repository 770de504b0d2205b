package migration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/wire"
	"github.com/ckptd/ckptd/migrate"
)

// snapshot is all that a caller can see of the threads of a user.
func (w *world) snapshot() map[string][]string {
	w.Helper()
	all := map[string][]string{}
	for info, err := range w.store.User("acme", "ada").Threads(w.Context(), engine.ThreadOptions{}) {
		if err != nil {
			w.Fatal(err)
		}
		spaces, err := w.store.Thread(info.Ref).Namespaces(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		for _, space := range spaces {
			r := info.Ref
			r.Namespace = space
			all[r.Thread+"/"+space] = w.lineage(r)
		}
	}
	return all
}

func (w *world) lineage(r engine.Ref) (all []string) {
	w.Helper()
	t := w.store.Thread(r)
	for cp, err := range t.History(w.Context(), engine.HistoryOptions{Data: true}) {
		if err != nil {
			w.Fatal(err)
		}
		writes, err := t.Writes(w.Context(), cp.ID)
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%d %s %x %d %s %+v", cp.Seq, cp.ID, cp.Hash, cp.SchemaVersion, cp.Channels[0].Data, writes))
	}
	branches, err := t.Branches(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	latest, err := t.Load(w.Context(), engine.Latest)
	if err != nil {
		w.Fatal(err)
	}
	return append(all, fmt.Sprintf("%v, the newest is %d", branches, latest.Seq))
}

// settle makes threads of all shapes.
func (w *world) settle(threads int) {
	w.Helper()
	for i := range threads {
		r := ref(fmt.Sprintf("t%03d", i))
		first := w.save(r, engine.Draft{Step: 1})
		w.save(r, engine.Draft{Step: 2})
		switch i % 4 {
		case 1: // a namespace
			r.Namespace = "sub"
			w.save(r, engine.Draft{Step: 3})
		case 2: // a branch that is not the newest
			w.save(r, engine.Draft{Step: 3, Parent: first.ID, Branch: "other"})
			w.save(r, engine.Draft{Step: 4, Parent: first.ID})
		case 3: // pending writes, and a branch at the newest
			cp := w.save(r, engine.Draft{Step: 3, Branch: "main", ID: fmt.Sprintf("00000000-0000-7000-8000-%012x", i)})
			if _, err := w.store.Thread(r).PutWrites(w.Context(), cp.ID, "task", "", engine.Upsert, []engine.Write{{Channel: "c", Data: []byte("w")}}, 0); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// heads checks that all heads are of a version.
func (w *world) heads(version uint64) {
	w.Helper()
	groups, err := w.jobs.Status(w.Context(), acme.Scope)
	if err != nil || len(groups) != 1 || groups[0].Version != version {
		w.Errorf("heads: %+v, %v; want version %d", groups, err, version)
	}
}

func TestRunAndUndo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeSteps)
	w.settle(40)
	before := w.snapshot()
	id := w.begin(acme, RunOptions{})
	report, err := w.jobs.Run(t.Context(), id, RunOptions{})
	if err != nil || report.Failed > 0 || report.Migrated != 60 {
		t.Fatalf("run: %+v, %v", report, err)
	}
	w.heads(4)
	for i := range 40 {
		r := ref(fmt.Sprintf("t%03d", i))
		cp, err := w.store.Thread(r).Load(t.Context(), engine.Latest)
		if err != nil || cp.Step != []int64{2, 2, 4, 3}[i%4] {
			t.Errorf("thread %d: the newest is of step %d, %v", i, cp.Step, err)
		}
		if i%4 == 3 {
			if writes, err := w.store.Thread(r).Writes(t.Context(), cp.ID); err != nil || len(writes) != 1 {
				t.Errorf("thread %d: writes %v, %v", i, writes, err)
			}
		}
	}
	if _, err := w.jobs.Run(t.Context(), id, RunOptions{}); !errors.Is(err, wire.ErrJobState) {
		t.Errorf("running a job that is done: %v", err)
	}
	report, err = w.jobs.Undo(t.Context(), id, RunOptions{})
	if err != nil || report.Failed > 0 || report.Migrated != 60 {
		t.Fatalf("undo: %+v, %v", report, err)
	}
	if diff := cmp.Diff(before, w.snapshot()); diff != "" {
		t.Errorf("undone (-before +after):\n%s", diff)
	}
	job, err := w.jobs.Job(id)
	if err != nil || job.State != Undone || job.Migrated != 60 || job.Undone != 60 {
		t.Errorf("job: %+v, %v", job, err)
	}
	if err := w.jobs.Finish(t.Context(), id); err != nil {
		t.Error(err)
	}
	if _, err := w.jobs.Job(id); !errors.Is(err, wire.ErrNoJob) {
		t.Errorf("the journal of a finished job: %v", err)
	}
}

// Whatever a run and an undo are interrupted at, they go on, and every head is of the old or the
// new version meanwhile.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 12 {
		w := newWorld(t, threeSteps)
		w.settle(30)
		before := w.snapshot()
		spec := acme
		spec.Rewrite = round%3 == 2
		id := w.begin(spec, RunOptions{})
		again := func(what func(ctx context.Context, id string, o RunOptions) (*Report, error)) {
			for n := 0; ; n++ {
				ctx, cancel := context.WithCancel(t.Context())
				left := rng.IntN(20)
				o := RunOptions{Workers: 1 + rng.IntN(4), Progress: func(int, int) {
					if left--; left == 0 && n < 10 {
						cancel()
					}
				}}
				_, err := what(ctx, id, o)
				cancel()
				if err == nil {
					return
				}
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				if round%2 == 0 {
					w.tear(id, rng)
				}
			}
		}
		again(w.jobs.Run)
		w.heads(4)
		again(w.jobs.Undo)
		if diff := cmp.Diff(before, w.snapshot()); diff != "" {
			t.Fatalf("round %d, undone (-before +after):\n%s", round, diff)
		}
	}
}

// tear loses the last frame of a journal, or part of it, as if it had not come to the disk; never
// that before the last outcomes: each frame is durable before the next is begun.
func (w *world) tear(id string, rng *rand.Rand) {
	w.Helper()
	var last int64
	l, err := w.jobs.open(id, false, func(at int64, f *frame) error {
		if last = -1; f.Outcomes != nil || f.Undone != nil {
			last = at
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	defer l.close()
	if last > 0 {
		if err := os.Truncate(w.jobs.path(id), last+rng.Int64N(l.size-last)); err != nil {
			w.Fatal(err)
		}
	}
}

// Agents save while their threads are migrated: no save is lost, and the migrated state never takes
// the place of a newer one.
func TestRunAmongSaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeSteps)
	const threads = 8
	for i := range threads {
		w.save(ref(fmt.Sprint("t", i)), engine.Draft{Step: 1})
	}
	stop := make(chan bool)
	var agents sync.WaitGroup
	saved := make([]int64, threads)
	for i := range threads {
		agents.Go(func() {
			th := w.store.Thread(ref(fmt.Sprint("t", i)))
			for step := int64(2); ; step++ {
				select {
				case <-stop:
					return
				default:
				}
				for saved[i] < step {
					cp, err := th.Load(t.Context(), engine.Latest)
					if err != nil || cp.Step != step-1 {
						t.Errorf("step %d: the newest is %+v, %v", step, cp, err)
						return
					}
					d := engine.Draft{Kind: "support", SchemaVersion: cp.SchemaVersion, Step: step, Expect: engine.ExpectHead(cp.Seq),
						Channels: []engine.Change{{Name: "state", Type: "json", Data: cp.Channels[0].Data}}}
					_, err = th.Save(t.Context(), d)
					if err == nil {
						saved[i] = step
					} else if !errors.Is(err, engine.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range 3 {
		id := w.begin(acme, RunOptions{})
		if _, err := w.jobs.Run(t.Context(), id, RunOptions{}); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Millisecond)
		if _, err := w.jobs.Undo(t.Context(), id, RunOptions{}); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	agents.Wait()
	w.heads(4)
}

func TestUndoLeavesWhatWasSavedSince(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeSteps)
	for _, name := range []string{"kept", "deleted", "anew", "undone"} {
		w.save(ref(name), engine.Draft{Step: 1})
	}
	id := w.begin(acme, RunOptions{})
	if _, err := w.jobs.Run(t.Context(), id, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	w.save(ref("kept"), engine.Draft{Step: 2, SchemaVersion: 4, Kind: "support"})
	for _, name := range []string{"deleted", "anew"} {
		if _, err := w.store.Thread(ref(name)).Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.save(ref("anew"), engine.Draft{Step: 1})
	w.save(ref("anew"), engine.Draft{Step: 2})
	report, err := w.jobs.Undo(t.Context(), id, RunOptions{})
	if err != nil || report.Failed != 3 || report.Migrated != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	for name, want := range map[string]uint64{"kept": 4, "anew": 1, "undone": 1} {
		cp, err := w.store.Thread(ref(name)).Load(t.Context(), engine.Latest)
		if err != nil || cp.SchemaVersion != want || name == "anew" && cp.Seq != 2 {
			t.Errorf("%s: %+v, %v", name, cp, err)
		}
	}
}

// What cannot be migrated is refused before anything is written.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, step, state string
		version           uint64
		want              error
		says              []string
	}{
		{"a step fails", `.channels.state.n |= tonumber`, `{"n": "x"}`, 1, wire.ErrJobRefused, []string{`thread "bad"`, `step 1 to 2 of "support" (support/0002_x.jq)`}},
		{"nothing comes out", `empty`, `{}`, 1, migrate.ErrStep, []string{`thread "bad"`, "step 1 to 2"}},
		{"several come out", `., .`, `{}`, 1, migrate.ErrStep, []string{`thread "bad"`, "step 1 to 2"}},
		{"no object comes out", `1`, `{}`, 1, migrate.ErrStep, []string{`thread "bad"`, "step 1 to 2"}},
		{"it never ends", `[range(infinite)]`, `{}`, 1, migrate.ErrStep, []string{`thread "bad"`, "step 1 to 2"}},
		{"no JSON", `.`, `{"n"`, 1, wire.ErrJobRefused, []string{`thread "bad"`}},
		{"newer than the set", `.`, `{}`, 3, migrate.ErrTooNew, []string{`thread "bad"`, `"support"`, "version 3", "version 2", "older than the store"}},
		{"older than the set", `.`, `{}`, 7, migrate.ErrTooNew, []string{`thread "bad"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, fstest.MapFS{"support/0002_x.jq": {Data: []byte(tt.step)}})
			for _, name := range []string{"a", "bad", "c"} {
				d := engine.Draft{Kind: "support", SchemaVersion: 1, Channels: []engine.Change{{Name: "state", Type: "json", Data: []byte(`{"n":"1"}`)}}}
				if name == "bad" {
					d.SchemaVersion, d.Channels[0].Data = tt.version, []byte(tt.state)
				} else if tt.want == migrate.ErrStep {
					d.SchemaVersion = 2
				}
				w.save(ref(name), d)
			}
			before := w.snapshot()
			_, _, err := w.jobs.Start(t.Context(), acme, RunOptions{})
			if !errors.Is(err, tt.want) {
				t.Fatalf("%v; want %v", err, tt.want)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if jobs, err := w.jobs.List(); err != nil || len(jobs) > 0 {
				t.Errorf("jobs: %v, %v", jobs, err)
			}
			if diff := cmp.Diff(before, w.snapshot()); diff != "" {
				t.Errorf("something was written (-before +after):\n%s", diff)
			}
		})
	}
}

// With a rate of errors, what fails is left as it is, and too much of it stops the job, which can
// go on with a mended step.
func TestErrorRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fstest.MapFS{"support/0002_x.jq": {Data: []byte(`.channels.state.attempts |= if . == "7" then error("seven") else tonumber end`)}})
	for i := range 300 {
		w.save(ref(fmt.Sprintf("t%03d", i)), engine.Draft{Step: int64(i%10 + 1)})
	}
	id := w.begin(acme, RunOptions{MaxErrorRate: 0.01})
	report, err := w.jobs.Run(t.Context(), id, RunOptions{MaxErrorRate: 0.01})
	if !errors.Is(err, wire.ErrJobStopped) || report.Migrated == 0 || report.Migrated > 250 {
		t.Fatalf("%+v, %v", report, err)
	}
	if job, err := w.jobs.Job(id); err != nil || job.State != Stopped || job.Migrated != report.Migrated {
		t.Errorf("job: %+v, %v; reported %+v", job, err, report)
	}
	if report, err = w.jobs.Run(t.Context(), id, RunOptions{MaxErrorRate: 0.5}); err != nil || report.Failed != 30 {
		t.Fatalf("%+v, %v", report, err)
	}
	if job, err := w.jobs.Job(id); err != nil || job.State != Done || job.Migrated != 270 || job.Failed != 30 {
		t.Errorf("job: %+v, %v", job, err)
	}
}

func TestDryRunReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeSteps)
	state := func(attempts string) []engine.Change {
		return []engine.Change{{Name: "state", Type: "json", Data: fmt.Appendf(nil, `{"user_pref":{},"customer":"Mia","attempts":%s}`, attempts)}}
	}
	for i := range 50 {
		w.save(ref(fmt.Sprintf("t%03d", i)), engine.Draft{Kind: "support", SchemaVersion: 1, Channels: state("null")})
		w.save(ref(fmt.Sprintf("t%03d", i)), engine.Draft{Kind: "support", SchemaVersion: 1, Channels: state(`"1"`)})
	}
	w.save(ref("plain"), engine.Draft{Kind: "other", SchemaVersion: 1, Channels: state("1")})
	w.save(ref("current"), engine.Draft{Kind: "support", SchemaVersion: 4, Channels: state("1")})
	heads, err := w.jobs.DryRun(t.Context(), acme, false, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Report{States: 52, Current: 1, Left: 1, Migrated: 50}, heads); diff != "" {
		t.Errorf("heads (-want +got):\n%s", diff)
	}
	all, err := w.jobs.DryRun(t.Context(), acme, true, RunOptions{})
	if err != nil || all.States != 102 || all.Failed != 50 || len(all.Failures) != 1 {
		t.Fatalf("all: %+v, %v", all, err)
	}
	f := all.Failures[0]
	if f.Source != "support/0004_count.jq" || f.Count != 50 || len(f.Examples) != MaxExamples || f.Examples[0].Ref.Thread != "t000" || f.Examples[0].Seq != 1 {
		t.Errorf("failures: %+v", f)
	}
}
