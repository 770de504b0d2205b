package torture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ckptd/ckptd/backend"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// question asks a probe for the content of a place.
type question struct {
	Place  place
	Want   string // the file with the expected content
	Engine bool   // read through the engine too
	GoOn   bool   // if it is sound, commit to it and read it again
}

// verdict is its answer. A store can report that it is damaged; the data that it returns must be
// right.
type verdict struct {
	Refused  string   // the error that names the damage
	Problems []string // data that is wrong, missing or old, and errors of another form
}

// probe answers questions until there is none. It is a process of its own, since a damaged store
// can crash its reader.
func probe(in io.Reader) error {
	var want *dump
	last := ""
	for lines := bufio.NewReader(in); ; {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return nil
		}
		var q question
		if err := json.Unmarshal(text, &q); err != nil {
			return err
		}
		if q.Want != last {
			if want, err = readDump(q.Want); err != nil {
				return err
			}
			last = q.Want
		}
		v := q.answer(context.Background(), want)
		if err := tell(line{Verdict: v}); err != nil {
			return err
		}
	}
}

func (q *question) answer(ctx context.Context, want *dump) *verdict {
	v := &verdict{}
	b, err := q.Place.openBackend()
	if err != nil {
		v.refused("opening", err)
		return v
	}
	defer func() { b.Close() }()
	got, err := entries(ctx, b)
	if err != nil {
		v.refused("reading", err)
		return v
	}
	v.compare(got, want.Entries)
	if q.Engine {
		v.readThrough(ctx, q.Place, b, want.Contents)
		return v
	}
	if !q.GoOn || len(v.Problems) > 0 {
		return v
	}
	key := []byte("\xff torture")
	if err := b.Commit(ctx, backend.Batch{Muts: []backend.Mut{{Key: key, Value: key, Version: "1"}}}); err != nil {
		v.add("going on: %v", err)
		return v
	}
	v.add2(b.Close())
	if b, err = q.Place.openBackend(); err != nil {
		v.add("opening again after going on: %v", err)
		return v
	}
	if got, err = entries(ctx, b); err != nil {
		v.add("reading again after going on: %v", err)
		return v
	}
	if got[string(key)].Version != "1" {
		v.add("the commits after the damage are lost")
	}
	delete(got, string(key))
	v.compare(got, want.Entries)
	return v
}

func (v *verdict) add(format string, args ...any) {
	v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
}

func (v *verdict) add2(err error) {
	if err != nil {
		v.add("%v", err)
	}
}

// honest are the errors that name the fault of a damaged directory.
var honest = []error{
	backend.ErrCorrupt, backend.ErrForeign, backend.ErrNewerFormat,
	engine.ErrCorrupt, engine.ErrKeyMissing, engine.ErrNewerFormat, engine.ErrOlderFormat,
	crypto.ErrWrongKey, crypto.ErrKeyFileMissing, crypto.ErrKeyFileFormat, crypto.ErrKeystoreEntry,
	crypto.ErrForeignKeystore, crypto.ErrNoStore, crypto.ErrNewerFormat, crypto.ErrOlderFormat,
}

func (v *verdict) refused(doing string, err error) {
	if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "panic") {
		v.add("%s: the error is not one line: %v", doing, err)
	}
	if !slices.ContainsFunc(honest, func(e error) bool { return errors.Is(err, e) }) {
		v.add("%s: the error does not say that it is damaged: %v", doing, err)
	}
	v.Refused = fmt.Sprintf("%s: %v", doing, err)
}

// compare finds the differences from the expected content.
func (v *verdict) compare(got, want map[string]backend.Entry) {
	missing, wrong, many := 0, 0, 0
	for key, w := range want {
		switch g, ok := got[key]; {
		case !ok:
			missing++
		case g.Version != w.Version || !bytes.Equal(g.Value, w.Value):
			wrong++
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			many++
		}
	}
	if missing+wrong+many > 0 {
		v.add("of %d entries %d are silently missing, %d are others, %d too many are there", len(want), missing, wrong, many)
	}
}

// readThrough reads every thread by the engine. Each is right, or an error.
func (v *verdict) readThrough(ctx context.Context, p place, b backend.Backend, want map[string]thread) {
	s, err := p.openOn(b, false)
	if err != nil {
		v.refused("opening the engine", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch got, err := read(ctx, s.Thread(refOf(name))); {
		case err != nil:
			v.refused("reading "+name, err)
		case !got.equal(want[name]):
			v.add("%s is another one", name)
		}
	}
	switch all, err := contents(ctx, s); {
	case err != nil:
		v.refused("listing", err)
	case len(all) != len(want):
		v.unlisted(ctx, s, len(all), len(want))
	}
}

// unlisted judges a list without some threads. Users are listed from the keystore: verify must find
// the data of those that it lacks.
func (v *verdict) unlisted(ctx context.Context, s *engine.Store, got, want int) {
	switch rep, err := s.Upkeep().Verify(ctx, upkeep.VerifyOptions{}); {
	case err != nil:
		v.refused("verifying", err)
	case rep.Clean():
		v.add("%d of %d threads are listed, and verify finds no problem", got, want)
	default:
		v.refused("verifying", rep.Problems[0].Err)
	}
}

// prober asks a probe, and starts another one when that died.
type prober struct {
	c     *child
	asked int
}

const patience = 2 * time.Minute

// ask returns the verdict on a place; that its reader died or hung is one too.
func (p *prober) ask(q question) *verdict {
	if p.c == nil {
		c, err := start(job{Kind: "probe"})
		if err != nil {
			return &verdict{Problems: []string{err.Error()}}
		}
		p.c, p.asked = c, 0
	}
	text, err := json.Marshal(q)
	if err == nil {
		_, err = p.c.in.Write(append(text, '\n'))
	}
	hung := time.AfterFunc(patience, func() { p.c.Process.Kill() })
	l, readErr := p.c.next()
	inTime := hung.Stop()
	if err = errors.Join(err, readErr); err != nil || l.Verdict == nil {
		v := &verdict{}
		if v.add("the reader died: %v %s %s", err, l.Failed, p.c.complaint()); !inTime {
			v.add("the reader hung for %v", patience)
		}
		p.c = nil
		return v
	}
	if p.asked++; p.asked == 40 { // stores that were not closed stay open in it
		p.stop()
	}
	return l.Verdict
}

func (p *prober) stop() {
	if p.c != nil {
		p.c.kill()
		p.c = nil
	}
}
