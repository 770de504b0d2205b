package engine_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend/mem"
	"github.com/ckptd/ckptd/codec"
	. "github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// However the clock jumps, and across restarts, ids and times of a lineage only grow.
func TestClockGoesBackAndForth(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	be := mem.Open()
	o := withKeys(t, Options{Now: func() time.Time { return now }, CacheBytes: -1})
	s := open(t, keepsOpen{be}, o)
	var last *Checkpoint
	for i := range 60 {
		now = now.Add(time.Duration(i*7919%41-20) * time.Hour)
		th := s.Thread(refOf("t"))
		cp, err := th.Save(t.Context(), Draft{Step: int64(i), TTL: 365 * 24 * time.Hour, Channels: state("step %d", i)})
		if err != nil {
			t.Fatal(err)
		}
		if last != nil && (cp.ID <= last.ID || cp.Time.Before(last.Time)) {
			t.Errorf("step %d: %s at %v comes after %s at %v", i, cp.ID, cp.Time, last.ID, last.Time)
		}
		last = cp
		if i%7 == 0 {
			relabelled, err := th.SetLabels(t.Context(), At(cp.ID), map[string]string{"step": fmt.Sprint(i)})
			if err != nil {
				t.Fatal(err)
			}
			if relabelled.ID != cp.ID || relabelled.Time.Before(cp.Time) {
				t.Errorf("step %d: labelled, it is %s at %v, and was %s at %v", i, relabelled.ID, relabelled.Time, cp.ID, cp.Time)
			}
		}
		if i%11 == 0 {
			s.Close()
			s = open(t, keepsOpen{be}, o)
		}
	}
	defer s.Close()
	checkDeep(t, s)
}

// A splice may keep all of a value, or nothing, or change it at either end, and a value may be
// empty.
func TestSplicesAtTheEndsOfAValue(t *testing.T) {
	be := mem.Open()
	o := withKeys(t, Options{})
	s := open(t, keepsOpen{be}, o)
	want := "0123456789"
	if _, err := s.Thread(refOf("t")).Save(t.Context(), Draft{Channels: []Change{{Name: "m", Data: []byte(want)}, {Name: "empty"}}}); err != nil {
		t.Fatal(err)
	}
	for i, c := range []Change{
		{Prefix: 10}, {Suffix: 10}, {Prefix: 5, Suffix: 5}, {Prefix: 5, Suffix: 5, Data: []byte("x")}, {Prefix: 11, Data: []byte("end")},
		{Suffix: 14, Data: []byte("begin")}, {Prefix: 19}, {}, {Data: []byte("abc")}, {Prefix: 3, Data: []byte("def")}, {Suffix: 1}, {},
	} {
		th := s.Thread(refOf("t"))
		head, err := th.Load(t.Context(), Latest)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := head.Channel("m")
		c.Name, c.Base = "m", m.Version
		want = want[:c.Prefix] + string(c.Data) + want[len(want)-c.Suffix:]
		if _, err := th.Save(t.Context(), Draft{Keep: true, Step: int64(i), Channels: []Change{c}}); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		s.Close()
		s = open(t, keepsOpen{be}, o)
		got, err := s.Thread(refOf("t")).Load(t.Context(), Latest)
		if err != nil {
			t.Fatal(err)
		}
		m, _ = got.Channel("m")
		if empty, ok := got.Channel("empty"); string(m.Data) != want || !ok || len(empty.Data) != 0 {
			t.Errorf("after %+v it is %q, want %q", c, m.Data, want)
		}
	}
	defer s.Close()
	checkDeep(t, s)
}

// The greatest record that there may be, by its channels, labels and metadata together, can be
// read, kept and thinned out.
func TestGreatestRecord(t *testing.T) {
	be := mem.Open()
	o := withKeys(t, Options{})
	s := open(t, keepsOpen{be}, o)
	r := rand.New(rand.NewPCG(11, 11))
	longest := func(i int) string { return fmt.Sprintf("%0*d", codec.MaxName, i) }
	d := Draft{Labels: map[string]string{}, Meta: []byte(`"` + strings.Repeat("x", codec.MaxMeta-2) + `"`)}
	want := map[string][]byte{}
	for i := range codec.MaxChannels {
		want[longest(i)] = randomText(r, i%50)
		d.Channels = append(d.Channels, Change{Name: longest(i), Type: longest(i), Data: want[longest(i)]})
	}
	for i := range codec.MaxLabels {
		d.Labels[longest(i)] = longest(i)
	}
	for i := range 3 {
		d.Step = int64(i)
		if _, err := s.Thread(refOf("t")).Save(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		d.Keep, d.Channels = true, nil
	}
	if cp, err := s.Thread(refOf("t")).Save(t.Context(), Draft{Keep: true, Channels: []Change{{Name: "one too many"}}}); err == nil {
		t.Errorf("%d channels were saved", len(cp.Channels))
	}
	if _, err := s.Thread(refOf("t")).Upkeep().Prune(t.Context(), upkeep.PruneOptions{KeepLast: 1}); err != nil {
		t.Error(err)
	}
	s.Close()
	s = open(t, keepsOpen{be}, o)
	defer s.Close()
	got, err := s.Thread(refOf("t")).Load(t.Context(), Latest)
	if err != nil {
		t.Fatal(err)
	}
	if got.Step != 2 || !bytes.Equal(got.Meta, d.Meta) || !maps.Equal(got.Labels, d.Labels) || len(got.Channels) != len(want) {
		t.Errorf("step %d has %d bytes of metadata, %d labels and %d channels", got.Step, len(got.Meta), len(got.Labels), len(got.Channels))
	}
	for _, ch := range got.Channels {
		if !bytes.Equal(ch.Data, want[ch.Name]) {
			t.Fatalf("%s differs", ch.Name)
		}
	}
	if longRun() > 0 { // each of the labels is looked for in the whole record
		checkDeep(t, s)
	}
}
