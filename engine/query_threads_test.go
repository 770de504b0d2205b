package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// testClock is a clock that a test moves.
type testClock struct{ ms int64 }

func (c *testClock) now() time.Time { return time.UnixMilli(c.ms) }

func mustSave(t testing.TB, f *fixture, ref Ref, d Draft) *Checkpoint {
	t.Helper()
	cp, err := f.Thread(ref).Save(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	return cp
}

func listThreads(t *testing.T, u *User, o ThreadOptions) (infos []ThreadInfo, ids []string) {
	t.Helper()
	for info, err := range u.Threads(context.Background(), o) {
		if err != nil {
			t.Fatal(err)
		}
		infos, ids = append(infos, info), append(ids, info.Ref.Thread)
	}
	return infos, ids
}

func TestThreads(t *testing.T) {
	ctx := context.Background()
	clock := &testClock{ms: 1_000_000}
	f := newFixture(t, Options{Now: clock.now})
	u := f.User("acme", "alice")
	if infos, _ := listThreads(t, u, ThreadOptions{}); infos != nil {
		t.Errorf("a user who never saved has threads %v", infos)
	}
	if _, err := u.Latest(ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("latest of a user who never saved: %v", err)
	}
	var want []string
	for i := range 70 {
		clock.ms += 10
		ref := testRef(fmt.Sprintf("run-%02d", 69-i))
		mustSave(t, f, ref, Draft{Channels: []Change{{Name: "a", Data: []byte("x")}}})
		want = append(want, ref.Thread)
	}
	slices.Sort(want)
	mustSave(t, f, Ref{Tenant: "acme", User: "bob", Thread: "run-00"}, Draft{})
	mustSave(t, f, testRef("gone"), Draft{})
	if _, err := f.Thread(testRef("gone")).Delete(ctx); err != nil {
		t.Fatal(err)
	}
	mustSave(t, f, testRef("short"), Draft{TTL: time.Second})
	clock.ms += 500
	sub := testRef("run-07")
	sub.Namespace = "search"
	mustSave(t, f, sub, Draft{Step: 77})
	head := mustSave(t, f, testRef("run-07"), Draft{Keep: true, Step: 5, Status: StatusWaiting, RunID: "r1", Labels: map[string]string{"env": "prod"}})
	if _, ids := listThreads(t, u, ThreadOptions{}); !slices.Equal(ids, append(slices.Clone(want), "short")) {
		t.Errorf("threads %q", ids)
	}
	clock.ms += 2000
	f.reopen()
	infos, ids := listThreads(t, f.User("acme", "alice"), ThreadOptions{Count: true})
	if !slices.Equal(ids, want) {
		t.Fatalf("threads %q, want %q", ids, want)
	}
	got := infos[7]
	if got.HeadID != head.ID || got.HeadSeq != 2 || got.Step != 5 || got.Status != StatusWaiting || got.RunID != "r1" ||
		got.Labels["env"] != "prod" || got.Checkpoints != 3 || !got.Updated.Equal(head.Time) || got.Generation != 1 || got.Ref != testRef("run-07") {
		t.Errorf("run-07 is %+v", got)
	}
	if infos[6].Checkpoints != 1 || infos[6].Created.UnixMilli() != 1_000_000+10*64 {
		t.Errorf("run-06 is %+v", infos[6])
	}
	if _, ids := listThreads(t, f.User("acme", "alice"), ThreadOptions{Prefix: "run-1"}); len(ids) != 10 || ids[0] != "run-10" {
		t.Errorf("threads with a prefix: %q", ids)
	}
	latest, err := f.User("acme", "alice").Latest(ctx)
	if err != nil || latest.ID != head.ID || string(latest.Channels[0].Data) != "x" {
		t.Errorf("latest is %+v, %v", latest, err)
	}
	if latest, err = f.User("acme", "alice").Latest(ctx, LoadOptions{HeadersOnly: true}); err != nil || latest.Channels[0].Data != nil {
		t.Errorf("headers of the latest: %+v, %v", latest, err)
	}
	for range f.User("acme", "alice").Threads(ctx, ThreadOptions{}) {
		break
	}
	for _, err := range f.User("acme", "").Threads(ctx, ThreadOptions{}) {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("a user without a name: %v", err)
		}
	}
}

// A thread with checkpoints in a named namespace only is listed, without a head.
func TestThreadWithoutOwnCheckpoints(t *testing.T) {
	f := newFixture(t, Options{})
	ref := testRef("t")
	ref.Namespace = "sub"
	mustSave(t, f, ref, Draft{})
	infos, _ := listThreads(t, f.User("acme", "alice"), ThreadOptions{Count: true})
	if len(infos) != 1 || infos[0].HeadSeq != 0 || infos[0].Checkpoints != 1 || infos[0].Updated != infos[0].Created {
		t.Errorf("threads %+v", infos)
	}
	if _, err := f.User("acme", "alice").Latest(context.Background()); !errors.Is(err, ErrNotFound) {
		t.Errorf("latest: %v", err)
	}
}
