package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/migrate"
)

// travel encodes a message and decodes it into another, by way of binary or JSON.
func travel[M proto.Message](t *testing.T, json bool, from, to M) M {
	t.Helper()
	marshal, unmarshal := proto.Marshal, proto.Unmarshal
	if json {
		marshal, unmarshal = protojson.Marshal, protojson.Unmarshal
	}
	b, err := marshal(from)
	if err == nil {
		err = unmarshal(b, to)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// maker makes random values.
type maker struct{ *rand.Rand }

func (m maker) text() string {
	return []string{"", "a", "größer", strings.Repeat("x", m.IntN(300))}[m.IntN(4)]
}
func (m maker) bytes() []byte {
	b := make([]byte, m.IntN(20))
	for i := range b {
		b[i] = byte(m.Uint32())
	}
	return b
}
func (m maker) labels() map[string]string {
	out := map[string]string{}
	for i := range m.IntN(3) {
		out[fmt.Sprint("k", i)] = m.text()
	}
	return out
}
func (m maker) blobs() []engine.BlobID {
	ids := make([]engine.BlobID, m.IntN(3))
	for i := range ids {
		ids[i][0] = byte(m.Uint32())
	}
	return ids
}

func (m maker) draft() engine.Draft {
	d := engine.Draft{ID: m.text(), Parent: m.text(), Root: m.IntN(2) == 0, AllowDangling: m.IntN(2) == 0, Branch: m.text(), Generation: m.Uint64(),
		Step: m.Int64() - m.Int64(), Status: m.text(), SchemaVersion: m.Uint64(), RunID: m.text(), Keep: m.IntN(2) == 0, Kind: m.text(), CalledFrom: m.text(), TTL: time.Duration(m.Int64N(1e12) - 5e11)}
	if m.IntN(2) == 0 {
		d.Expect = engine.ExpectHead(uint64(m.IntN(3)))
	}
	if m.IntN(2) == 0 {
		d.Labels = m.labels()
	}
	if m.IntN(2) == 0 {
		d.Meta = []byte(`{"n": 1.0}`)[:10*m.IntN(2)]
	}
	if m.IntN(2) == 0 {
		d.Blobs = m.blobs()
	}
	for i := range m.IntN(4) {
		c := engine.Change{Name: fmt.Sprint("c", i), Type: m.text(), Data: m.bytes()}
		switch m.IntN(3) {
		case 0:
			c.Base, c.Prefix, c.Suffix = engine.Version(1+m.Uint64N(1e15)), m.IntN(1e6), m.IntN(1e6)
		case 1:
			c = engine.Change{Name: c.Name, Type: c.Type, Remove: true}
		}
		d.Channels = append(d.Channels, c)
	}
	return d
}

// TestDraft sends random drafts both ways. What is nil and what is empty arrives as such: it
// decides what is kept.
func TestDraft(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(1, 2))}
	sameBytes := cmp.Comparer(func(a, b engine.Change) bool {
		return bytes.Equal(a.Data, b.Data) && reflect.DeepEqual(engine.Change{Name: a.Name, Type: a.Type, Base: a.Base, Prefix: a.Prefix, Suffix: a.Suffix, Remove: a.Remove},
			engine.Change{Name: b.Name, Type: b.Type, Base: b.Base, Prefix: b.Prefix, Suffix: b.Suffix, Remove: b.Remove})
	})
	for i := range 2000 {
		want := m.draft()
		got, err := UnpackDraft(travel(t, i%2 == 0, PackDraft(&want), &ckptdv1.Draft{}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, sameBytes, cmp.AllowUnexported(engine.Expect{})); diff != "" {
			t.Fatal(diff)
		}
	}
}

func (m maker) checkpoint() *engine.Checkpoint {
	cp := &engine.Checkpoint{Ref: engine.Ref{Tenant: m.text(), User: m.text(), Thread: m.text(), Namespace: m.text()}, Generation: m.Uint64(), ID: m.text(),
		Parent: m.text(), Seq: m.Uint64(), ParentSeq: m.Uint64(), Branch: m.text(), Time: time.UnixMilli(m.Int64N(1e13)).UTC(), Step: m.Int64(), Status: m.text(),
		SchemaVersion: m.Uint64(), RunID: m.text(), Kind: m.text(), Cost: engine.Cost{State: m.Int64(), Stored: m.Int64(), Depth: m.IntN(256), Full: m.IntN(2) == 0}}
	if m.IntN(2) == 0 {
		cp.Meta = []byte(`{"n": 1.0}`)
	}
	if m.IntN(2) == 0 {
		cp.Migrated = &engine.Migrated{From: m.Uint64(), To: m.Uint64(), Steps: []string{"rename", "a step"}}
	}
	if labels := m.labels(); len(labels) > 0 {
		cp.Labels = labels
	}
	if blobs := m.blobs(); len(blobs) > 0 {
		cp.Blobs = blobs
	}
	copy(cp.Hash[:], m.bytes())
	for range m.IntN(3) {
		h := hook.Identity{Name: m.text(), Digest: [32]byte{byte(m.Uint32())}, Config: [32]byte{byte(m.IntN(2))}}
		cp.Hooks = append(cp.Hooks, h)
	}
	cp.Fuel = m.Uint64() * uint64(m.IntN(2))
	for i := range m.IntN(4) {
		ch := engine.Channel{Name: fmt.Sprint("c", i), Type: m.text(), Version: engine.Version(m.Uint64()), Size: m.Int64(), Rewritten: m.IntN(2) == 0}
		if m.IntN(3) > 0 {
			ch.Data = m.bytes()
		}
		cp.Channels = append(cp.Channels, ch)
	}
	return cp
}

// TestCheckpoint sends random checkpoints both ways, with content as bytes and as text. Content
// that is empty is told from none.
func TestCheckpoint(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(3, 4))}
	for i := range 2000 {
		want := m.checkpoint()
		got, err := UnpackCheckpoint(travel(t, i%2 == 0, PackCheckpoint(want, Shown{Text: i%4 < 2, Meta: true, Stored: true}), &ckptdv1.Checkpoint{}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
	if _, err := UnpackCheckpoint(nil); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("no checkpoint: %v", err)
	}
	if _, err := UnpackCheckpoint(&ckptdv1.Checkpoint{Hash: []byte("short")}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a short hash: %v", err)
	}
}

func TestWhich(t *testing.T) {
	for _, want := range []engine.Which{engine.Latest, engine.LatestByID(), engine.At("a"), engine.AtSeq(7), engine.Before("b"), engine.LatestOfRun("r"), engine.HeadOf("main")} {
		if got := UnpackWhich(travel(t, true, PackWhich(want), &ckptdv1.Which{})); got != want {
			t.Errorf("%+v arrives as %+v", want, got)
		}
	}
	if got := UnpackWhich(nil); got != engine.Latest {
		t.Errorf("nothing is %+v", got)
	}
}

// TestErrors sends every error of the table over the wire, and what it carries.
func TestErrors(t *testing.T) {
	full := []error{
		&engine.ConflictError{HeadSeq: 7, HeadID: "head"},
		&engine.NeedFullError{Channels: []string{"a", "b"}},
		&engine.LimitError{What: "metadata", Size: 10, Most: 5},
		&engine.BranchExistsError{Name: "main", HeadSeq: 3},
		&RetryError{Err: ErrOverloaded, What: "requests under way", After: 1500 * time.Millisecond},
		&RetryError{Err: ErrShuttingDown, After: time.Second},
		&hook.Error{Kind: hook.ErrRejected, Plugin: "redact", Stage: hook.PreSave, Item: "channel messages", Reason: "rule card"},
		&hook.Error{Kind: hook.ErrFailed, Plugin: "a@1.0.0", Stage: hook.Migrate, Item: "meta", Code: 17, Reason: "no"},
		&hook.Error{Kind: hook.ErrFuel, Plugin: "a@1.0.0", Stage: hook.Load}, &hook.Error{Kind: hook.ErrTimeout, Stage: hook.Export},
		&hook.Error{Kind: hook.ErrTrap}, &hook.Error{Kind: hook.ErrLimit}, &hook.Error{Kind: hook.ErrUnavailable}, &hook.Error{Kind: hook.ErrInvalid, Reason: "abi = 9"},
		&migrate.VersionError{Kind: migrate.ErrTooNew, Of: "support", From: 4, To: 3, Why: "no way back"},
		&migrate.VersionError{Kind: migrate.ErrNoPath, Of: "support", From: 1, To: 9},
		&migrate.StepError{Kind: "support", From: 1, To: 2, Source: "jq 0002_rename.jq", Path: "/channels/a", Reason: "null"},
	}
	for _, want := range full {
		got := UnpackError(PackError(fmt.Errorf("saving: %w", want)))
		target := reflect.New(reflect.TypeOf(want))
		if !errors.As(got, target.Interface()) || !reflect.DeepEqual(target.Elem().Interface(), want) {
			t.Errorf("%#v arrives as %#v", want, target.Elem().Interface())
		}
	}
	refused := UnpackError(PackError(fmt.Errorf("%w, 1 state would fail: %w", ErrJobRefused, full[len(full)-1])))
	if step, ok := errors.AsType[*migrate.StepError](refused); !ok || step.Path != "/channels/a" || !errors.Is(refused, ErrJobRefused) || !errors.Is(refused, migrate.ErrStep) {
		t.Errorf("a refused job arrives as %v", refused)
	}
	seen := map[ckptdv1.Reason]bool{}
	for _, row := range Table() {
		err := row.Err
		if err == errBranchExists {
			err = full[3]
		}
		packed := PackError(fmt.Errorf("doing: %w", err))
		if connect.CodeOf(packed) != row.Code {
			t.Errorf("%v has code %v, want %v", err, connect.CodeOf(packed), row.Code)
		}
		want := err
		if errors.Is(err, engine.ErrClosed) { // to a caller, the server is shutting down
			want = ErrShuttingDown
		}
		got := UnpackError(packed)
		if !errors.Is(got, want) && row.Err != errBranchExists || errors.Is(got, engine.ErrConflict) != errors.Is(err, engine.ErrConflict) {
			t.Errorf("%v arrives as %v", err, got)
		}
		seen[row.Reason] = true
	}
	for number, name := range ckptdv1.Reason_name {
		if number != 0 && !seen[ckptdv1.Reason(number)] {
			t.Errorf("no error has the reason %s", name)
		}
	}
}

// TestErrorsTellNoMore checks what of an error a caller is not told.
func TestErrorsTellNoMore(t *testing.T) {
	for _, err := range []error{fmt.Errorf("user %q: %w", "secret", engine.ErrNotFound), errors.New("panic: secret")} {
		if packed := PackError(err); strings.Contains(packed.Error(), "secret") {
			t.Errorf("the caller is told: %v", packed)
		}
	}
	if got := PackError(fmt.Errorf("loading %q: %w", "secret", context.Canceled)); connect.CodeOf(got) != connect.CodeCanceled || strings.Contains(got.Error(), "secret") {
		t.Errorf("canceled: %v", got)
	}
	if got := PackError(fmt.Errorf("%w: %q", engine.ErrInvalid, "\xff")); !strings.Contains(got.Error(), "invalid argument") {
		t.Errorf("not UTF-8: %v", got)
	}
	packed, _ := errors.AsType[*connect.Error](PackError(&RetryError{Err: ErrOverloaded, What: "x", After: 2600 * time.Millisecond}))
	if packed.Meta().Get("Retry-After") != "3" {
		t.Errorf("headers %v", packed.Meta())
	}
}
