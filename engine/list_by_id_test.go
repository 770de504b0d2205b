package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/engine/upkeep"
)

// idWorld is a user with random threads, namespaces and ids of all sorts.
type idWorld struct {
	t     *testing.T
	f     *fixture
	r     *rand.Rand
	clock *testClock
	ids   []string // that were chosen
	stays bool     // the store is not opened again
}

func newIDWorld(t *testing.T, seed uint64) *idWorld {
	w := &idWorld{t: t, r: rand.New(rand.NewPCG(seed, 1)), clock: &testClock{ms: 1_700_000_000_000}}
	w.f = newFixture(t, Options{Now: w.clock.now})
	return w
}

func (w *idWorld) ref() Ref {
	return Ref{Tenant: "acme", User: "alice", Thread: fmt.Sprint("t", w.r.IntN(4)), Namespace: []string{"", "", "a", "a|b"}[w.r.IntN(4)]}
}

// id chooses an id: "" is for the engine to make.
func (w *idWorld) id() string {
	id := ""
	switch w.r.IntN(9) {
	case 0, 1:
		return ""
	case 2: // made by the engine somewhere, or chosen before
		if len(w.ids) > 0 {
			return w.ids[w.r.IntN(len(w.ids))]
		}
	case 3: // as LangGraph makes them
		id = fmt.Sprintf("1f0%05x-0000-6000-8000-%012x", w.clock.ms&0xfffff, w.r.IntN(1<<20))
	case 4:
		id = uuidOf(w.clock.ms-int64(w.r.IntN(20)), w.r.Uint64())
	case 5:
		id = uuidOf(int64(w.r.Uint64()>>16), w.r.Uint64())
	case 6:
		id = strings.ToUpper(uuidOf(w.clock.ms, w.r.Uint64()))
	case 7:
		id = strings.Repeat("x", 1+w.r.IntN(4)) + []string{"", "\x00", "-", "é"}[w.r.IntN(4)]
	case 8:
		id = uuidOf(w.clock.ms, w.r.Uint64())[:w.r.IntN(35)+1]
	}
	if id == "" {
		id = "0"
	}
	w.ids = append(w.ids, id)
	return id
}

func (w *idWorld) step() {
	ctx := w.t.Context()
	w.clock.ms += int64(w.r.IntN(3))
	ref := w.ref()
	th := w.f.Thread(ref)
	fail := func(err error) {
		w.t.Helper()
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrConflict) {
			w.t.Fatal(err)
		}
	}
	switch n := w.r.IntN(100); {
	case n < 75:
		d := Draft{ID: w.id(), Step: int64(w.r.IntN(5)), Status: []string{"", StatusFailed}[w.r.IntN(2)], RunID: fmt.Sprint("r", w.r.IntN(3)),
			Channels: []Change{{Name: "m", Data: words(w.r, w.r.IntN(200))}, {Name: "n", Data: []byte("n")}}}
		if w.r.IntN(3) > 0 {
			d.Meta = fmt.Appendf(nil, `{"source":%q,"step":%d,"in":{"a":[1,{"b":%d}]}}`, []string{"loop", "input"}[w.r.IntN(2)], w.r.IntN(3), w.r.IntN(3))
		}
		if w.r.IntN(4) == 0 {
			d.Labels = map[string]string{"l": fmt.Sprint(w.r.IntN(2))}
		}
		cp, err := th.Save(ctx, d)
		fail(err)
		if err == nil {
			w.ids = append(w.ids, cp.ID) // saved again by its id, or in another lineage
			if w.r.IntN(3) == 0 {
				_, err := th.PutWrites(ctx, cp.ID, fmt.Sprint(w.r.IntN(3)), "", Upsert, []Write{{Channel: "w", Data: words(w.r, 50)}}, 0)
				fail(err)
			}
		}
	case n < 78:
		_, err := th.PutWrites(ctx, cmp.Or(w.id(), "-"), "task", "", Upsert, []Write{{Channel: "w", Data: []byte("w")}}, 0)
		fail(err)
	case n < 88:
		o := upkeep.PruneOptions{KeepLast: 1 + w.r.IntN(8), ByID: w.r.IntN(2) == 0, AllNamespaces: w.r.IntN(2) == 0, Erase: w.r.IntN(4) == 0}
		_, err := th.Upkeep().Prune(ctx, o)
		fail(err)
	case n < 91:
		_, err := th.Delete(ctx)
		fail(err)
	case n < 95:
		to := ref
		to.Thread, to.Namespace, ref.Namespace = fmt.Sprint("t", w.r.IntN(4)), "", ""
		fail(w.f.Thread(ref).Copy(ctx, to))
	case n < 97:
		_, _, err := w.f.User("acme", "alice").Upkeep().DeleteRun(ctx, fmt.Sprint("r", w.r.IntN(3)))
		fail(err)
	case n < 98:
		_, err := w.f.Upkeep().GC(ctx, "acme", upkeep.GCOptions{})
		fail(err)
	case !w.stays:
		w.f.reopen()
	}
}

// all are all checkpoints, read one by one, in order of id.
func (w *idWorld) all() (all []*Entry) {
	ctx := w.t.Context()
	infos, _ := listThreads(w.t, w.f.User("acme", "alice"), ThreadOptions{})
	for _, info := range infos {
		names, err := w.f.Thread(info.Ref).Namespaces(ctx)
		must(w.t, err)
		for _, name := range append([]string{""}, slices.DeleteFunc(names, func(n string) bool { return n == "" })...) {
			ref := info.Ref
			ref.Namespace = name
			for cp, err := range w.f.Thread(ref).History(ctx, HistoryOptions{}) {
				must(w.t, err)
				cp, err = w.f.Thread(ref).Load(ctx, At(cp.ID))
				must(w.t, err)
				ws, err := w.f.Thread(ref).Writes(ctx, cp.ID)
				must(w.t, err)
				all = append(all, &Entry{cp, ws})
			}
		}
	}
	slices.SortFunc(all, func(a, b *Entry) int {
		return cmp.Or(-strings.Compare(a.Checkpoint.ID, b.Checkpoint.ID), a.Checkpoint.Ref.Compare(b.Checkpoint.Ref))
	})
	return all
}

// want selects those of all that match some options.
func (o *ListByIDOptions) want(all []*Entry) (want []*Entry) {
	var object map[string]any
	_ = json.Unmarshal(o.Meta, &object)
	for _, e := range all {
		cp := e.Checkpoint
		var meta map[string]any
		_ = json.Unmarshal(cp.Meta, &meta)
		after := o.Before == "" || cp.ID < o.Before || cp.ID == o.Before && o.After != nil && cp.Ref.Compare(*o.After) > 0
		if o.Thread != "" && cp.Ref.Thread != o.Thread || o.Namespace != nil && cp.Ref.Namespace != *o.Namespace || o.ID != "" && cp.ID != o.ID ||
			!after || !o.Filter.matches(cp) || o.Visible != nil && !o.Visible(cp.Ref.Thread) || object != nil && meta == nil {
			continue
		}
		ok := true
		for k, v := range object {
			ok = ok && reflect.DeepEqual(meta[k], v)
		}
		if ok {
			want = append(want, e)
		}
		if len(want) == o.Limit && o.Limit > 0 {
			break
		}
	}
	return want
}

func (w *idWorld) options(all []*Entry) ListByIDOptions {
	o := ListByIDOptions{Data: w.r.IntN(2) == 0, Writes: w.r.IntN(2) == 0, Limit: w.r.IntN(2) * w.r.IntN(12)}
	some := func() string {
		if id := w.id(); len(all) == 0 || w.r.IntN(3) == 0 {
			return cmp.Or(id, "0")
		}
		return all[w.r.IntN(len(all))].Checkpoint.ID
	}
	if w.r.IntN(2) == 0 {
		o.Thread = w.ref().Thread
	}
	if w.r.IntN(2) == 0 {
		o.Namespace = &[]string{"", "a", "none"}[w.r.IntN(3)]
	}
	if w.r.IntN(2) == 0 {
		o.Before = some()
		if ref := w.ref(); w.r.IntN(2) == 0 {
			o.After = &ref
		}
	}
	if w.r.IntN(6) == 0 {
		o.ID = some()
	}
	switch w.r.IntN(6) {
	case 0:
		o.Meta = []byte(`{"source":"loop"}`)
	case 1:
		o.Meta = []byte(`{"step":1.0,"source":"input"}`)
	case 2:
		o.Meta = []byte(`{}`)
	}
	switch w.r.IntN(6) {
	case 0:
		o.Status = StatusFailed
	case 1:
		o.RunID, o.Labels = "r1", map[string]string{"l": "1"}
	case 2:
		step := int64(2)
		o.MinStep = &step
	}
	if w.r.IntN(4) == 0 {
		o.Visible = func(thread string) bool { return thread != "t1" }
	}
	return o
}

func listed(t *testing.T, f *fixture, o ListByIDOptions) (got []*Entry) {
	t.Helper()
	for e, err := range f.User("acme", "alice").ListByID(t.Context(), o) {
		must(t, err)
		got = append(got, e)
	}
	return got
}

func (w *idWorld) check(o ListByIDOptions, got, want []*Entry) {
	w.t.Helper()
	names := func(es []*Entry) (out []string) {
		for _, e := range es {
			out = append(out, fmt.Sprintf("%s|%s|%q", e.Checkpoint.Ref.Thread, e.Checkpoint.Ref.Namespace, e.Checkpoint.ID))
		}
		return out
	}
	if g, x := names(got), names(want); !slices.Equal(g, x) {
		w.t.Fatalf("%+v:\ngot  %v\nwant %v", o, strings.Join(g, "\n     "), strings.Join(x, "\n     "))
	}
	for i, e := range got {
		is, x := *e.Checkpoint, *want[i].Checkpoint
		is.Cost, x.Cost = Cost{}, Cost{}
		if x.Channels = slices.Clone(x.Channels); !o.Data {
			for j := range x.Channels {
				x.Channels[j].Data = nil
			}
		}
		if !reflect.DeepEqual(is, x) {
			w.t.Fatalf("%+v:\ngot  %+v\nwant %+v", o, is, x)
		}
		if o.Writes && !reflect.DeepEqual(e.Writes, want[i].Writes) || !o.Writes && e.Writes != nil {
			w.t.Fatalf("%+v: %s: writes %v, want %v", o, x.ID, e.Writes, want[i].Writes)
		}
	}
}

// A list by id is all checkpoints in scope, read one by one, filtered and sorted.
func TestListByIDRandom(t *testing.T) {
	worlds, listedAny := 30, 0
	if testing.Short() {
		worlds = 8
	}
	for seed := range uint64(worlds) {
		w := newIDWorld(t, seed)
		for range 6 {
			for range 40 {
				w.step()
			}
			all := w.all()
			w.check(ListByIDOptions{Data: true, Writes: true}, listed(t, w.f, ListByIDOptions{Data: true, Writes: true}), all)
			for range 40 {
				o := w.options(all)
				got := listed(t, w.f, o)
				w.check(o, got, o.want(all))
				listedAny += len(got)
				w.pages(o, all)
				w.histories(o, all)
			}
		}
	}
	if listedAny < 1000 {
		t.Errorf("only %d checkpoints were listed", listedAny)
	}
}

// pages lists page by page.
func (w *idWorld) pages(o ListByIDOptions, all []*Entry) {
	o.Limit = 0
	want := o.want(all)
	var got []*Entry
	for next := o; ; {
		next.Limit = 1 + w.r.IntN(5)
		page := listed(w.t, w.f, next)
		got = append(got, page...)
		if len(page) < next.Limit {
			break
		}
		last := page[len(page)-1].Checkpoint
		next.Before, next.After = last.ID, &last.Ref
	}
	w.check(o, got, want)
}

// histories lists lineages by id.
func (w *idWorld) histories(o ListByIDOptions, all []*Entry) {
	ref := w.ref()
	lo := ListByIDOptions{Thread: ref.Thread, Namespace: &ref.Namespace, Before: o.Before, Limit: o.Limit, Filter: o.Filter, Data: o.Data}
	var got []*Entry
	for cp, err := range w.f.Thread(ref).History(w.t.Context(), HistoryOptions{ByID: true, Before: o.Before, Limit: o.Limit, Filter: o.Filter, Data: o.Data}) {
		if errors.Is(err, ErrNotFound) {
			break
		}
		must(w.t, err)
		got = append(got, &Entry{Checkpoint: cp})
	}
	w.check(lo, got, lo.want(all))
}

// The ids of a lineage that all are of one sort, more than are read at a time.
func TestListByIDMany(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	clock := &testClock{ms: 1_700_000_000_000}
	f := newFixture(t, Options{Now: clock.now})
	sorts := map[string]func(i int) string{
		"made":    func(int) string { return "" },
		"uuid6":   func(i int) string { return fmt.Sprintf("1f0%05x-0000-6000-8000-%012x", i/3, r.IntN(1<<20)) },
		"uuid7":   func(int) string { return uuidOf(clock.ms, r.Uint64()) },
		"uuid4":   func(int) string { return uuidOf(int64(r.Uint64()>>16), r.Uint64()) },
		"text":    func(i int) string { return fmt.Sprint(i) },
		"another": func(i int) string { return []string{"", fmt.Sprint("p", i), uuidOf(clock.ms, r.Uint64())}[i%3] },
	}
	for name, id := range sorts {
		var ids []string
		for i := range 600 {
			clock.ms += int64(r.IntN(2))
			ids = append(ids, mustSave(t, f, testRef(name), Draft{ID: id(i), Keep: true, Channels: []Change{{Name: "m", Data: fmt.Append(nil, i)}}}).ID)
		}
		slices.Sort(ids)
		slices.Reverse(ids)
		for _, before := range []int{-1, 0, 1, 17, 299, 598, 599} {
			o := ListByIDOptions{Thread: name}
			if before >= 0 {
				o.Before = ids[before]
			}
			var got []string
			for _, e := range listed(t, f, o) {
				got = append(got, e.Checkpoint.ID)
			}
			if !slices.Equal(got, ids[before+1:]) {
				t.Errorf("%s before %d: %d ids, want %d: %.5q", name, before, len(got), 599-before, got)
			}
		}
	}
}

// A prune by id keeps the greatest ids and, with them, no later save.
func TestPruneByID(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	ref := testRef("t")
	for _, id := range []string{"0", "2", "1"} {
		mustSave(t, f, ref, Draft{ID: id, Channels: []Change{{Name: "m", Data: []byte(id)}}})
	}
	o := upkeep.PruneOptions{KeepLast: 1, ByID: true, DryRun: true}
	if rep := mustPrune(t, f, ref, o); len(rep.Removed) != 2 || rep.Kept != 1 {
		t.Errorf("a dry run: %+v", rep)
	}
	if _, err := f.Thread(ref).Upkeep().Prune(ctx, upkeep.PruneOptions{Remove: []string{"2"}, ByID: true}); !errors.Is(err, ErrInvalid) {
		t.Errorf("removing the greatest id: %v, want ErrInvalid", err)
	}
	o.DryRun = false
	mustPrune(t, f, ref, o)
	cp, err := f.Thread(ref).Load(ctx, Latest)
	if got := listed(t, f, ListByIDOptions{}); err != nil || cp.ID != "2" || len(got) != 1 || got[0].Checkpoint.ID != "2" {
		t.Errorf("left: %+v, %v; the newest is %+v", got, err, cp)
	}
	next := mustSave(t, f, ref, Draft{ID: "3", Keep: true})
	if next.Parent != "2" {
		t.Errorf("the next one's parent is %q", next.Parent)
	}
}
