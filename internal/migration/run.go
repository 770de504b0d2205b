package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/panics"
	"github.com/ckptd/ckptd/internal/wire"
	"github.com/ckptd/ckptd/migrate"
)

const (
	batchSize = 128 // lineages whose intents are made durable at once
	// leastTried is the number of states to process before the error rate is meaningful.
	leastTried = 100
	// mostConflicts is the number of retries for a thread that others save to.
	mostConflicts = 1000
)

// Run carries out a job, or resumes one that was interrupted or stopped. Threads that were saved to
// meanwhile are migrated again, so no save is lost. If ctx ends, the job is as if it had been
// killed, and a later Run resumes it. wire.ErrJobStopped means more failures than MaxErrorRate
// allows.
func (j *Jobs) Run(ctx context.Context, id string, o RunOptions) (*Report, error) {
	if !j.busy.TryLock() {
		return nil, wire.ErrJobBusy
	}
	defer j.busy.Unlock()
	l, h, err := j.read(id, true)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if s := h.job.State; s != Running && s != Stopped {
		return nil, fmt.Errorf("%w: job %s is %s", wire.ErrJobState, id, s)
	}
	if err := j.pinned(h.begin); err != nil {
		return nil, err
	}
	r := &run{Jobs: j, log: l, begin: h.begin, o: o, pace: newPace(o, 0)}
	again := h.pending
	err = r.settle(ctx, h)
	if err == nil && h.job.State == Stopped {
		err = l.become(h, Running)
	}
	if err == nil && len(again) > 0 {
		err = r.batch(ctx, again)
	}
	if err == nil {
		err = r.all(ctx)
	}
	report := r.tally.done()
	switch {
	case errors.Is(err, wire.ErrJobStopped):
		err = errors.Join(err, l.become(h, Stopped))
	case err == nil:
		err = l.become(h, Done)
	}
	if err != nil {
		return report, fmt.Errorf("running migration job %s: %w", id, err)
	}
	return report, nil
}

// run is a job that is being carried out.
type run struct {
	*Jobs
	log   *journal
	begin *begin
	o     RunOptions
	tally tally
	pace  *pace
}

// all migrates all that is in scope and is not of its version yet. Threads are looked for while
// others are migrated.
func (r *run) all(ctx context.Context) error {
	spec := r.begin.Spec
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	found := make(chan intent, batchSize)
	var looking sync.WaitGroup
	var lookErr error
	looking.Go(func() {
		defer close(found)
		defer panics.To(func(err error) { lookErr = err })
		lookErr = r.look(ctx, spec, found)
	})
	var err error
	batch := make([]intent, 0, batchSize)
	for in := range found {
		if batch = append(batch, in); len(batch) < batchSize && len(found) > 0 {
			continue
		}
		if err = r.batch(ctx, batch); err != nil {
			stop(err)
			break
		}
		batch = batch[:0]
	}
	for range found { // any observer sees that it ended
	}
	looking.Wait()
	if err == nil {
		err = lookErr
	}
	if err == nil && len(batch) > 0 {
		err = r.batch(ctx, batch)
	}
	return err
}

// look finds the states to migrate.
func (r *run) look(ctx context.Context, spec Spec, found chan<- intent) error {
	hand := func(in intent) error {
		select {
		case found <- in:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if spec.Rewrite {
		return r.lookForHistories(ctx, spec, hand)
	}
	return r.eachLineage(ctx, spec.Scope, runtime.GOMAXPROCS(0), func(_ context.Context, l *lineage) error {
		in := intent{User: l.ref.User, Thread: l.ref.Thread, Namespace: l.ref.Namespace}
		for _, h := range l.heads {
			if to, ok := r.begin.To[h.Kind]; ok && to != h.SchemaVersion {
				in.Seqs = append(in.Seqs, h.Seq)
			} else if ok {
				r.tally.add(func(rep *Report) { rep.States++; rep.Current++ })
			} else {
				r.tally.add(func(rep *Report) { rep.States++; rep.Left++ })
			}
		}
		if len(in.Seqs) == 0 {
			return nil
		}
		return hand(in)
	})
}

// batch migrates some lineages: it writes the intents to the journal, migrates, and writes the
// outcomes. If it is interrupted in between, the next run finds out the outcomes.
func (r *run) batch(ctx context.Context, batch []intent) error {
	if err := r.log.commit(&frame{Intents: batch}); err != nil {
		return err
	}
	var mu sync.Mutex // guards the fields below
	outcomes, unsure := []outcome{}, false
	workers := r.o.Workers
	if workers <= 0 {
		workers = 4 * runtime.GOMAXPROCS(0) // they wait for the disk together
	}
	err := inParallel(ctx, workers, func(_ context.Context, hand func(intent) error) error {
		for _, in := range batch {
			if err := hand(in); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context, in intent) error {
		out, err := r.one(ctx, in)
		mu.Lock()
		outcomes = append(outcomes, out...)
		unsure = unsure || errors.Is(err, engine.ErrAmbiguous)
		mu.Unlock()
		return err
	})
	if unsure || err != nil && !errors.Is(err, wire.ErrJobStopped) {
		return err
	}
	return errors.Join(err, r.log.commit(&frame{Outcomes: outcomes}))
}

// one migrates a lineage or, if histories are rewritten, a thread.
func (r *run) one(ctx context.Context, in intent) ([]outcome, error) {
	if r.begin.Spec.Rewrite {
		return r.rewrite(ctx, in)
	}
	t := r.store.Thread(in.ref(r.begin.Spec.Tenant))
	var done []outcome
	for try := 0; ; try++ {
		heads, err := headsOf(ctx, t)
		if err == nil {
			heads, err = andThose(ctx, t, heads, in.Seqs)
		}
		if err == nil {
			err = r.heads(ctx, t, heads, in, &done)
		}
		switch {
		case err == nil:
			return done, nil
		case gone(err):
			r.tally.add(func(rep *Report) { rep.States++; rep.Gone++ })
			return done, nil
		case errors.Is(err, engine.ErrConflict) && try < mostConflicts:
			// Somebody saved in between: look again, not all at the same time.
			if err := sleep(ctx, time.Duration(rand.Int64N(int64(min(try+1, 20))*int64(time.Millisecond)))); err != nil {
				return done, err
			}
		default:
			return done, fmt.Errorf("thread %q of user %q: %w", in.Thread, in.User, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (in *intent) ref(tenant string) engine.Ref {
	return engine.Ref{Tenant: tenant, User: in.User, Thread: in.Thread, Namespace: in.Namespace}
}

// heads migrates the heads of a lineage, the oldest first.
func (r *run) heads(ctx context.Context, t *engine.Thread, heads []head, in intent, done *[]outcome) error {
	for i, h := range heads {
		to, ok := r.begin.To[h.Kind]
		if !ok || to == h.SchemaVersion {
			continue
		}
		o := upkeep.HeadMigration{Branch: h.branch, To: to, Down: r.begin.Spec.Down}
		if h.was || h.branch == "" && i > 0 { // those before it are the newest by now
			o.Seq = h.Seq
		}
		m, err := t.Upkeep().MigrateHead(ctx, o)
		if h.was && errors.Is(err, engine.ErrConflict) {
			continue // it is not a head any more
		}
		if permanent(err) {
			r.tally.fail(h.Checkpoint, err)
			r.tally.add(func(rep *Report) { rep.States++ })
			*done = append(*done, outcome{User: in.User, Thread: in.Thread, Namespace: in.Namespace, Old: h.Seq, Failed: true})
			if err := r.tooMany(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if m.New == nil {
			continue // somebody else did
		}
		r.tally.add(func(rep *Report) { rep.States++; rep.Migrated++ })
		*done = append(*done, outcome{User: in.User, Thread: in.Thread, Namespace: in.Namespace, Old: m.Old.Seq, New: m.New.Seq, Hash: m.New.Hash[:]})
		if err := r.pace.done(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

// permanent reports whether a state cannot be migrated, whenever one tries: that says nothing of
// other states.
func permanent(err error) bool {
	if errors.Is(err, engine.ErrAmbiguous) {
		return false // it may have been migrated, whatever the context ended for
	}
	return errors.Is(err, migrate.ErrStep) || errors.Is(err, migrate.ErrTooNew) || errors.Is(err, migrate.ErrNoPath) ||
		errors.Is(err, engine.ErrCorrupt) || errors.Is(err, engine.ErrRejected)
}

// tooMany is wire.ErrJobStopped if more states failed than may.
func (r *run) tooMany() error {
	rep := r.tally.done()
	tried := rep.Failed + rep.Migrated
	if rate := r.o.MaxErrorRate; rate > 0 && (tried < leastTried || float64(rep.Failed) <= rate*float64(tried)) {
		return nil
	}
	return fmt.Errorf("%w: %d of %d: %w", wire.ErrJobStopped, rep.Failed, tried, rep.Err())
}

// settle finds out the outcomes of the last intents of an interrupted job, and records them.
func (r *run) settle(ctx context.Context, h *history) error {
	if h.pending == nil {
		return nil
	}
	outcomes := []outcome{}
	for _, in := range h.pending {
		find := r.migratedSince
		if r.begin.Spec.Rewrite {
			find = r.rewritten
		}
		out, err := find(ctx, in)
		if err != nil && !gone(err) {
			return fmt.Errorf("inspecting thread %q of user %q: %w", in.Thread, in.User, err)
		}
		outcomes = append(outcomes, out...)
	}
	h.pending = nil
	f := &frame{Outcomes: outcomes}
	at := r.log.size
	if err := r.log.commit(f); err != nil {
		return err
	}
	return h.see(at, f)
}

// migratedSince finds the heads of a lineage that were migrated after an intent said so.
func (r *run) migratedSince(ctx context.Context, in intent) (out []outcome, err error) {
	t := r.store.Thread(in.ref(r.begin.Spec.Tenant))
	// A save whose context ended may be on its way still. Latest waits for it, and History does
	// not.
	if _, err := t.Load(ctx, engine.Latest, engine.LoadOptions{HeadersOnly: true}); err != nil {
		return nil, err
	}
	for cp, err := range t.History(ctx, engine.HistoryOptions{}) {
		if err != nil {
			return nil, err
		}
		if cp.Seq <= slices.Min(in.Seqs) {
			break
		}
		to, ok := r.begin.To[cp.Kind]
		if !ok || cp.SchemaVersion != to || cp.ParentSeq < slices.Min(in.Seqs) {
			continue
		}
		if is, err := r.isMigrated(ctx, t, cp); err != nil {
			return nil, err
		} else if is {
			out = append(out, outcome{User: in.User, Thread: in.Thread, Namespace: in.Namespace, Old: cp.ParentSeq, New: cp.Seq, Hash: cp.Hash[:]})
		}
	}
	slices.Reverse(out)
	return out, nil
}

// isMigrated reports whether cp is its parent, migrated: any other save there has another step or
// another state.
func (r *run) isMigrated(ctx context.Context, t *engine.Thread, cp *engine.Checkpoint) (bool, error) {
	was, err := t.Load(ctx, engine.AtSeq(cp.ParentSeq), engine.LoadOptions{Schema: cp.SchemaVersion, Down: r.begin.Spec.Down})
	if gone(err) || permanent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if was.Migrated == nil || was.Step != cp.Step || was.Status != cp.Status || was.RunID != cp.RunID || was.Branch != cp.Branch {
		return false, nil
	}
	if cp, err = t.Load(ctx, engine.AtSeq(cp.Seq)); err != nil {
		return false, err
	}
	return len(cp.Hooks) > 0 || sameState(was, cp), nil // hooks may have made something else of the state
}

func sameState(a, b *engine.Checkpoint) bool {
	return string(a.Meta) == string(b.Meta) && maps.Equal(a.Labels, b.Labels) &&
		slices.EqualFunc(a.Channels, b.Channels, func(x, y engine.Channel) bool {
			return x.Name == y.Name && x.Type == y.Type && string(x.Data) == string(y.Data)
		})
}
