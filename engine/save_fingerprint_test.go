package engine

import (
	"slices"
	"testing"

	"github.com/ckptd/ckptd/crypto"
)

func submittedDraft() *Draft {
	two, one := BlobID{}, BlobID{}
	for i := range one {
		one[i], two[i] = 1, 2
	}
	return &Draft{ID: "id", Parent: "parent", Step: -3, SchemaVersion: 7, RunID: "run", Branch: "main", Keep: true, Labels: map[string]string{"b": "c", "a": ""},
		Blobs: []BlobID{two, one, two}, Channels: []Change{{Name: "plan", Base: 0x0102030405060708, Prefix: 5, Suffix: 1, Data: []byte(",2")},
			{Name: "gone", Remove: true}, {Name: "messages", Type: "json", Data: []byte("[1]")}}}
}

// The fingerprint is that of docs/format.md §11; another program made the constant.
func TestSubmission(t *testing.T) {
	var key [32]byte
	for i := range key {
		key[i] = byte(i)
	}
	mark := func(d *Draft) uint64 {
		_, mark := fingerprint([]byte("scratch"), &key, d, func(c *Change) [32]byte { return crypto.Commit(&key, c.Data) })
		return mark
	}
	const want = 0x4812185da2502e3a
	d := submittedDraft()
	got := mark(d)
	if got != want {
		t.Errorf("got %x, want %x", got, uint64(want))
	}
	slices.Reverse(d.Channels)
	d.ID, d.Status, d.TTL, d.Expect, d.Generation, d.AllowDangling = "other", StatusRunning, 1, ExpectHead(1), 1, true
	if mark(d) != got {
		t.Error("the order of channels, the id or a condition matters")
	}
	if d.ID = ""; mark(d) != 0 {
		t.Error("a draft without an id has a mark")
	}
	seen := map[uint64]string{got: "none"}
	for name, change := range map[string]func(d *Draft){
		"step":      func(d *Draft) { d.Step++ },
		"status":    func(d *Draft) { d.Status = "x" },
		"schema":    func(d *Draft) { d.SchemaVersion++ },
		"run":       func(d *Draft) { d.RunID, d.Branch = "runm", "ain" },
		"branch":    func(d *Draft) { d.Branch = "" },
		"keep":      func(d *Draft) { d.Keep = false },
		"label":     func(d *Draft) { d.Labels["a"] = "x" },
		"labels":    func(d *Draft) { d.Labels = nil },
		"no labels": func(d *Draft) { d.Labels = map[string]string{} },
		"metadata":  func(d *Draft) { d.Meta = []byte("1") },
		"no meta":   func(d *Draft) { d.Meta = []byte{} },
		"blobs":     func(d *Draft) { d.Blobs = nil },
		"no blobs":  func(d *Draft) { d.Blobs = []BlobID{} },
		"blob":      func(d *Draft) { d.Blobs = d.Blobs[:1] },
		"name":      func(d *Draft) { d.Channels[0].Name = "plans" },
		"type":      func(d *Draft) { d.Channels[0].Type = "json" },
		"base":      func(d *Draft) { d.Channels[0].Base++ },
		"prefix":    func(d *Draft) { d.Channels[0].Prefix++ },
		"suffix":    func(d *Draft) { d.Channels[0].Suffix++ },
		"data":      func(d *Draft) { d.Channels[0].Data = []byte(",3") },
		"whole":     func(d *Draft) { d.Channels[2].Data = []byte("[2]") },
		"kind":      func(d *Draft) { d.Kind = "x" },
		"root":      func(d *Draft) { d.Root = true },
		"parent":    func(d *Draft) { d.Parent = "" },
		"remove":    func(d *Draft) { d.Channels[1].Remove = false },
		"channels":  func(d *Draft) { d.Channels = d.Channels[:2] },
	} {
		d := submittedDraft()
		change(d)
		sum := mark(d)
		if other, taken := seen[sum]; taken {
			t.Errorf("%s is the same as %s", name, other)
		}
		seen[sum] = name
	}
	// A list of splices is none that it is the same as, and each part of it counts.
	listed := func(splices ...Splice) *Draft {
		d := submittedDraft()
		d.Channels[0] = Change{Name: "plan", Base: d.Channels[0].Base, Splices: append([]Splice{}, splices...)}
		return d
	}
	one, two := Splice{1, 2, []byte("ab")}, Splice{3, 3, []byte("c")}
	const wantList = 0x5341fb7b72c346c7
	if got := mark(listed(one, two)); got != wantList {
		t.Errorf("got %x for a list of splices, want %x", got, uint64(wantList))
	}
	for _, d := range []*Draft{listed(), listed(one), listed(one, two), listed(two), listed(one, one), listed(Splice{0, 2, one.Data}, two),
		listed(Splice{1, 1, one.Data}, two), listed(Splice{1, 2, []byte("a")}, Splice{3, 3, []byte("bc")}), listed(Splice{1, 2, nil}, two)} {
		sum := mark(d)
		if other, taken := seen[sum]; taken {
			t.Errorf("splices %v are the same as %s", d.Channels[0].Splices, other)
		}
		seen[sum] = "other splices"
	}
	key[0]++
	if mark(submittedDraft()) == got {
		t.Error("the key does not matter")
	}
}
