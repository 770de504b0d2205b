package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/engine/upkeep"
)

// A history leaves out nothing that is replaced while it is read, far below its position.
func TestHistoryFindsWhatIsReplacedBelow(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	const n = 200
	var want, seen []string
	for i := range n {
		mustSave(t, f, th.Ref(), Draft{ID: fmt.Sprint("c", i), Root: true, Channels: []Change{{Name: "x", Data: []byte("x")}}})
		want = append([]string{fmt.Sprint("c", i)}, want...)
	}
	for cp, err := range th.History(ctx, HistoryOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if seen = append(seen, cp.ID); len(seen) > 1 {
			continue
		}
		mustSave(t, f, th.Ref(), Draft{ID: "new", Root: true, Channels: []Change{{Name: "x", Data: []byte("x")}}})
		mustSave(t, f, th.Ref(), Draft{ID: "on new", Parent: "new", Keep: true})
		for _, id := range []string{"c1", "new", "c50", "c199"} {
			if _, err := th.SetLabels(ctx, At(id), map[string]string{"a": "b"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: n + 2, Erase: true}); err != nil { // takes the records that they replaced
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("-want +seen:\n%s", diff)
	}
}

// A checkpoint replaced several times is found by its newest record if the one at its origin is
// removed while a history is read.
func TestHistoryFindsTheNewestReplacement(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	at := 0
	chain := func(parent string, n int) {
		for range n {
			at++
			id := fmt.Sprint("c", at)
			mustSave(t, f, th.Ref(), Draft{ID: id, Parent: parent, Keep: parent != "", Channels: []Change{{Name: "x", Data: fmt.Append(nil, at)}}})
			parent = id
		}
	}
	mustSave(t, f, th.Ref(), Draft{ID: "a", Channels: []Change{{Name: "x", Data: []byte("x")}}})
	for i := range 3 {
		chain("a", 100)
		if _, err := th.SetLabels(ctx, At("a"), map[string]string{"i": fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	chain("a", 10)
	if err := th.SetBranch(ctx, "here", At("a")); err != nil {
		t.Fatal(err)
	}
	seen, told := 0, 0
	for cp, err := range th.History(ctx, HistoryOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if cp.ID == "a" {
			told++
		}
		if seen++; seen == 250 {
			if _, err := th.Upkeep().Prune(ctx, upkeep.PruneOptions{KeepLast: 5}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if told != 1 {
		t.Errorf("the history tells of it %d times", told)
	}
}
