package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ckptd/ckptd/backend/mem"
	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// Channels and writes may hold the same value, however large it is.
func TestSameValueInSeveralPlaces(t *testing.T) {
	for _, size := range []int{100, 2 << 10, 70 << 10, 600 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			be := mem.Open()
			o := withKeys(t, Options{})
			s := open(t, keepsOpen{be}, o)
			value := randomText(rand.New(rand.NewPCG(11, 11)), size)
			changes := func(prefix string) (cs []Change) {
				for i := range 3 {
					cs = append(cs, Change{Name: fmt.Sprint(prefix, i), Data: value})
				}
				return cs
			}
			th := s.Thread(refOf("t"))
			for _, d := range []Draft{
				{ID: "first", Channels: changes("a")},
				{ID: "added", Keep: true, Channels: changes("b")},
				{ID: "root", Root: true, Channels: changes("c")},
			} {
				if _, err := th.Save(t.Context(), d); err != nil {
					t.Fatalf("%s: %v", d.ID, err)
				}
			}
			var ws []Write
			for i := range 3 {
				ws = append(ws, Write{Index: int64(i), Channel: "w", Data: value})
			}
			if _, err := th.PutWrites(t.Context(), "root", "task", "", Upsert, ws, 0); err != nil {
				t.Fatal(err)
			}
			to := refOf("copy")
			if err := th.Copy(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			if _, err := th.Upkeep().Prune(t.Context(), upkeep.PruneOptions{Remove: []string{"first"}, Erase: true}); err != nil {
				t.Fatal(err)
			}
			s.Close()
			s = open(t, keepsOpen{be}, o)
			defer s.Close()
			for _, at := range []spot{{refOf("t"), "added"}, {refOf("t"), "root"}, {to, "first"}, {to, "added"}, {to, "root"}} {
				checkSameValue(t, s, at, value)
			}
			checkDeep(t, s)
		})
	}
}

// checkSameValue checks that all channels and writes of a checkpoint have the value.
func checkSameValue(t *testing.T, s *Store, at spot, value []byte) {
	t.Helper()
	cp, err := s.Thread(at.ref).Load(t.Context(), At(at.id))
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range cp.Channels {
		if !bytes.Equal(ch.Data, value) {
			t.Errorf("%v: channel %s differs", at, ch.Name)
		}
	}
	ws, err := s.Thread(at.ref).Writes(t.Context(), at.id)
	if err != nil {
		t.Fatal(err)
	}
	if at.id == "root" && len(ws) != 3 {
		t.Errorf("%v has %d writes", at, len(ws))
	}
	for _, w := range ws {
		if !bytes.Equal(w.Data, value) {
			t.Errorf("%v: write %d differs", at, w.Index)
		}
	}
}
