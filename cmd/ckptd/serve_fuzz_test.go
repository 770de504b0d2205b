//go:build unix

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
)

// fuzzFor is how long the daemon is fuzzed over the wire; CKPTD_ATTACK sets it, for campaigns.
func fuzzFor(t *testing.T) time.Duration {
	v := os.Getenv("CKPTD_ATTACK")
	if v == "" {
		return 3 * time.Second
	}
	long, err := time.ParseDuration(v)
	must(t, err)
	return long
}

// apiMethods are all methods of the API.
func apiMethods() (all []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("ckptd.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				all = append(all, methods.Get(j))
			}
		}
		return true
	})
	slices.SortFunc(all, func(a, b protoreflect.MethodDescriptor) int {
		if a.FullName() < b.FullName() {
			return -1
		}
		return 1
	})
	return all
}

// valid fills the fields of a message with what they may have.
func valid(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if r.IntN(4) == 0 && fd.Name() != "ref" && fd.Name() != "tenant" && fd.Name() != "user" || depth > 5 {
			continue
		}
		switch {
		case fd.IsMap():
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
		case fd.IsList() && fd.Message() != nil:
			valid(r, m.Mutable(fd).List().AppendMutable().Message(), depth+1)
		case fd.IsList():
			m.Mutable(fd).List().Append(validValue(r, fd))
		case fd.Message() != nil:
			valid(r, m.Mutable(fd).Message(), depth+1)
		default:
			m.Set(fd, validValue(r, fd))
		}
	}
}

func validValue(r *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		switch fd.Name() {
		case "tenant":
			return protoreflect.ValueOfString("acme")
		case "user":
			return protoreflect.ValueOfString("alice")
		case "thread":
			return protoreflect.ValueOfString(fmt.Sprint("t", r.IntN(10)))
		}
		return protoreflect.ValueOfString([]string{"a", "b", "json", "{}", ""}[r.IntN(5)])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(make([]byte, r.IntN(2000)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(3)))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(r.IntN(5)))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(r.IntN(5)))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(r.IntN(5)))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(r.IntN(5)))
	}
	panic("a field of a kind that there was not before: " + fd.Kind().String())
}

// validRequest is a request to a method as it stands on the wire: its head, and its body.
func validRequest(r *rand.Rand, method protoreflect.MethodDescriptor) (head, body []byte) {
	m := dynamicpb.NewMessage(method.Input())
	valid(r, m, 0)
	procedure := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	kind, encoding := "proto", "Content-Encoding: gzip"
	body, err := proto.Marshal(m)
	if text, jsonErr := protojson.Marshal(m); r.IntN(2) == 0 && jsonErr == nil {
		kind, body = "json", text
	}
	if err != nil {
		return nil, nil
	}
	zip := r.IntN(4) == 0
	flag := byte(0)
	if zip {
		body, flag = zipped(body), 1
	}
	framed, family := method.IsStreamingClient() || method.IsStreamingServer(), "application/"
	switch {
	case framed:
		family, encoding = "application/connect+", "Connect-Content-Encoding: gzip"
	case r.IntN(4) == 0:
		framed, family, encoding = true, "application/grpc-web+", "Grpc-Encoding: gzip"
	}
	if framed {
		body = append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(body))), body...)
	}
	more := []string{"Connection: close", "Connect-Timeout-Ms: 200"}
	if zip {
		more = append(more, encoding)
	}
	return []byte(post(procedure, family+kind, "", len(body), more...)), body
}

// mutated is a request with something wrong.
func mutated(r *rand.Rand, b []byte) []byte {
	b = slices.Clone(b)
	for range 1 + r.IntN(3) {
		if len(b) == 0 {
			return b
		}
		at := r.IntN(len(b))
		switch r.IntN(6) {
		case 0:
			b = b[:at]
		case 1: // a length or a number that is huge
			b = slices.Insert(b, at, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)
		case 2:
			b = append(b, b[at:]...)
		case 3:
			b = slices.Insert(b, at, make([]byte, r.IntN(100_000))...)
		default:
			b[at] ^= 1 << r.IntN(8)
		}
	}
	return b
}

// throw sends a request and reads what comes of it for a while.
func (d *served) throw(request []byte) (answer []byte, err error) {
	c, err := net.Dial("unix", d.path("s"))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := c.Write(request); err == nil {
		c.(*net.UnixConn).CloseWrite()
	}
	answer, _ = io.ReadAll(io.LimitReader(c, 1<<20))
	return answer, nil
}

// fuzzLeft is what the daemon may hold more after it was fuzzed than before: the cache and the
// tables that were empty.
const fuzzLeft = 32 << 20

// TestServeFuzz sends valid requests to all methods, most of them with something wrong, for as long
// as it is told. The daemon is alive then, holds no more than before, and has what it acknowledged.
func TestServeFuzz(t *testing.T) {
	d := newServed(t, "--in-flight-bytes", attackBudget, "--cache", "16MiB", "--stall-timeout", "1s")
	d.start()
	c := d.client(client.Options{})
	kept := c.Thread(engine.Ref{Tenant: "kept", User: "kept", Thread: "kept"})
	_, err := kept.Save(t.Context(), textDraft("kept"))
	must(t, err)
	methods := apiMethods()
	var sent, answered, served atomic.Int64
	fuzz := func(seed uint64, until time.Time) {
		r := rand.New(rand.NewPCG(seed, 7))
		for time.Now().Before(until) {
			head, body := validRequest(r, methods[r.IntN(len(methods))])
			request := slices.Concat(head, body)
			switch r.IntN(8) {
			case 0: // as it is
			case 1:
				request = mutated(r, request)
			default:
				request = slices.Concat(head, mutated(r, body))
			}
			answer, err := d.throw(request)
			if err != nil {
				return // it has ended, or cannot take connections: seen below
			}
			if sent.Add(1); len(answer) > 0 {
				answered.Add(1)
			}
			if bytes.HasPrefix(answer, []byte("HTTP/1.1 200")) {
				served.Add(1)
			}
		}
	}
	run := func(seed uint64, long time.Duration) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { fuzz(seed+uint64(i), time.Now().Add(long)) })
		}
		wg.Wait()
	}
	run(1, time.Second) // to get warm
	before := d.level()
	long := fuzzFor(t)
	run(100, long)
	after := d.level() // as soon as nothing is under way
	now, most := d.memory()
	t.Logf("%d requests in %v, %d answered, %d of them with 200; %v before, %v after; memory %d MiB, at its most %d MiB", sent.Load(), long, answered.Load(), served.Load(), before, after,
		now>>20, most>>20)
	for _, line := range regexp.MustCompile(`(?m)^.*panicked.*$`).FindAllString(d.errs.String(), 3) {
		t.Errorf("the daemon says %.500s", line)
	}
	if after.heap > before.heap+fuzzLeft || after.goroutines > before.goroutines+20 {
		t.Errorf("the daemon has grown from %v to %v", before, after)
	}
	if served.Load() == 0 {
		t.Error("nothing was served: the requests are not what they should be")
	}
	cp, err := kept.Load(t.Context(), engine.Latest)
	must(t, err)
	if string(cp.Channels[0].Data) != "kept" {
		t.Errorf("what was saved loads as %q", cp.Channels[0].Data)
	}
	d.stop()
}
