package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ckptd/ckptd/engine/upkeep"
)

// A namespace with hidden ancestors that is deleted and begins again has nothing of its earlier life.
func TestNextLifeHasNoAncestors(t *testing.T) {
	for _, erase := range []bool{false, true} {
		f := newFixture(t, Options{})
		root, sub := testRef("t"), nsRef("t", "sub")
		mustSave(t, f, root, Draft{ID: "r0"})
		life := func(w string) {
			th := f.Thread(sub)
			for i := range 4 {
				id := fmt.Sprint(i)
				d := logDraft(id, "")
				if d.CalledFrom = "r0"; w == "b" {
					d.CalledFrom = "r1"
				}
				save(t, th, d)
				logWrite(t, th, id, w+id)
			}
			mustPrune(t, f, sub, upkeep.PruneOptions{KeepLast: 1})
			wantHistory(t, th, At("3"), fmt.Sprintf("|%s0,%s1,%s2", w, w, w))
		}
		life("a")
		mustSave(t, f, root, Draft{ID: "r1"})
		rep := mustPrune(t, f, root, upkeep.PruneOptions{KeepLast: 1, Erase: erase})
		if !slices.Equal(rep.Namespaces, []string{"sub"}) {
			t.Errorf("%+v", rep)
		}
		if got := namespaceKeys(t, f, sub); len(got) != 0 {
			t.Errorf("left %v", got)
		}
		save(t, f.Thread(sub), logDraft("3", ""))
		wantHistory(t, f.Thread(sub), At("3"), "|")
		ws, err := f.Thread(sub).Writes(t.Context(), "3")
		if err != nil || len(ws) != 0 {
			t.Errorf("%v, %v", ws, err)
		}
		mustDelete(t, f, sub)
		life("b")
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
	}
}

// A caller that is only hidden, as an ancestor, takes its namespaces along; a pinned namespace keeps
// it, with its history.
func TestAncestorsThatCalled(t *testing.T) {
	for _, erase := range []bool{false, true} {
		f := newFixture(t, Options{})
		root := testRef("t")
		th := f.Thread(root)
		for i := range 6 {
			id := fmt.Sprint(i)
			base := ""
			if i == 0 {
				base = "base"
			}
			save(t, th, logDraft(id, base))
			logWrite(t, th, id, "w"+id)
			sub := nsRef("t", "sub"+id)
			mustSave(t, f, sub, Draft{ID: "in" + id, CalledFrom: id})
		}
		if _, err := f.Thread(nsRef("t", "sub2")).SetLabels(t.Context(), At("in2"), map[string]string{LabelPin: "yes"}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			mustPrune(t, f, root, upkeep.PruneOptions{KeepLast: 1, Erase: erase})
			names, err := th.Namespaces(t.Context())
			if err != nil || !slices.Equal(names, []string{"", "sub2", "sub5"}) {
				t.Errorf("erase %v: %q, %v", erase, names, err)
			}
			wantHistory(t, th, At("5"), "base|w0,w1,w2,w3,w4")
			wantHistory(t, th, At("2"), "base|w0,w1")
			mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
		}
		if err := th.Copy(t.Context(), testRef("c")); err != nil {
			t.Fatal(err)
		}
		c := f.Thread(testRef("c"))
		save(t, c, logDraft("6", ""))
		rep := mustPrune(t, f, testRef("c"), upkeep.PruneOptions{KeepLast: 1, Erase: erase})
		if !slices.Equal(rep.Namespaces, []string{"sub5"}) {
			t.Errorf("in the copy: %+v", rep)
		}
		wantHistory(t, c, At("6"), "base|w0,w1,w2,w3,w4,w5")
		for e, err := range f.User("acme", "alice").ListByID(t.Context(), ListByIDOptions{Writes: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains([]string{"0", "1", "3", "4"}, e.Checkpoint.ID) {
				t.Errorf("hidden %s is listed", e.Checkpoint.ID)
			}
		}
		mustBeClean(t, f.Store, upkeep.VerifyOptions{Deep: true})
	}
}

// An ancestor that remains a checkpoint, since it was labelled, is refused to be removed, and not
// said to be missing.
func TestRemoveNeededAncestor(t *testing.T) {
	f := newFixture(t, Options{})
	th := f.Thread(testRef("t"))
	for _, id := range []string{"0", "1", "2"} {
		save(t, th, logDraft(id, ""))
		logWrite(t, th, id, "w"+id)
	}
	if _, err := th.SetLabels(t.Context(), At("1"), map[string]string{"k": "v"}); err != nil {
		t.Fatal(err)
	}
	for _, erase := range []bool{false, true} {
		_, err := th.Upkeep().Prune(t.Context(), upkeep.PruneOptions{Remove: []string{"1"}, Erase: erase})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("removing an ancestor that is needed: %v", err)
		}
	}
	mustSave(t, f, nsRef("t", "sub"), Draft{ID: "other"})
	for _, id := range []string{"none", "other"} {
		if _, err := th.Upkeep().Prune(t.Context(), upkeep.PruneOptions{Remove: []string{id}, Erase: true}); !errors.Is(err, ErrNotFound) {
			t.Errorf("removing %s: %v", id, err)
		}
	}
	wantHistory(t, th, At("2"), "|w0,w1")
}
