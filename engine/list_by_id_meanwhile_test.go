package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/engine/upkeep"
)

// Each checkpoint that exists as long as the list lasts is listed once and in order, whatever
// happens meanwhile, and in the end nothing is held.
func TestListByIDMeanwhile(t *testing.T) {
	w := newIDWorld(t, 99)
	w.stays = true
	lasting := map[string]bool{}
	for i := range 120 {
		ref := Ref{Tenant: "acme", User: "alice", Thread: "lasting", Namespace: []string{"", "a"}[i%2]}
		d := Draft{ID: []string{"", fmt.Sprint("id", i), fmt.Sprintf("1f0%05x-0000-6000-8000-%012x", i, 0)}[i%3], Keep: true, Channels: []Change{{Name: "m", Data: words(w.r, 3000)}}}
		lasting[mustSave(t, w.f, ref, d).ID+"|"+ref.Namespace] = true
	}
	for range 60 {
		w.step()
	}
	p := &purse{}
	seen, last := map[string]bool{}, anyID
	for e, err := range w.f.User("acme", "alice").ListByID(asking(t, p), ListByIDOptions{Data: true, Writes: true}) {
		must(t, err)
		cp := e.Checkpoint
		key := cp.ID + "|" + cp.Ref.Namespace
		if cp.ID > last || cp.Ref.Thread == "lasting" && seen[key] {
			t.Errorf("%q comes after %q, or again", cp.ID, last)
		}
		if last = cp.ID; cp.Ref.Thread == "lasting" {
			seen[key] = true
		}
		w.step()
		if w.r.IntN(3) == 0 { // replaced, by any id, or later removed as a ghost
			again := Draft{ID: cp.ID, Channels: []Change{{Name: "m", Data: words(w.r, 100)}}}
			ref := Ref{Tenant: "acme", User: "alice", Thread: "lasting", Namespace: []string{"", "a"}[w.r.IntN(2)]}
			mustSave(t, w.f, ref, again)
			for key := range lasting {
				if id, namespace, _ := strings.Cut(key, "|"); w.r.IntN(30) == 0 {
					ref.Namespace = namespace
					mustSave(t, w.f, ref, Draft{ID: id, Channels: []Change{{Name: "m", Data: []byte("r")}}})
				}
			}
		}
		if w.r.IntN(20) == 0 {
			_, err := w.f.Thread(Ref{Tenant: "acme", User: "alice", Thread: "lasting"}).Upkeep().Prune(t.Context(), upkeep.PruneOptions{KeepLast: 1 << 20, AllNamespaces: true, Erase: true})
			must(t, err)
		}
	}
	for key := range lasting {
		if !seen[key] {
			t.Errorf("%q is not listed", key)
		}
	}
	if p.held != 0 || p.most == 0 {
		t.Errorf("%d bytes are still held, %d at most", p.held, p.most)
	}
}

// A list without room ends with the error of its budget, and one that is given up holds nothing.
func TestListByIDPays(t *testing.T) {
	f := newFixture(t, Options{})
	for i := range 400 {
		mustSave(t, f, testRef(fmt.Sprint("t", i%20)), Draft{ID: fmt.Sprint("an id in no order ", i), Meta: []byte(`{"a":[1]}`), Channels: []Change{{Name: "m", Data: []byte("x")}}})
	}
	for _, size := range []int64{1, 2_000, 8_000} {
		p := &purse{size: size}
		err := error(nil)
		for _, err = range f.User("acme", "alice").ListByID(asking(t, p), ListByIDOptions{Meta: []byte(`{}`), Data: true}) {
		}
		if !errors.Is(err, errNoRoom) || p.held != 0 {
			t.Errorf("with room for %d bytes: %v, %d are held", size, err, p.held)
		}
	}
	p := &purse{}
	for _, err := range f.User("acme", "alice").ListByID(asking(t, p), ListByIDOptions{Data: true, Writes: true}) {
		must(t, err)
		break
	}
	if p.held != 0 || p.most < 20*bytesPerLine {
		t.Errorf("%d bytes are held after a list that was given up, at most %d", p.held, p.most)
	}
}
