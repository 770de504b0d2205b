package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/client"
)

var topTime = time.Date(2026, 11, 21, 8, 41, 7, 0, time.Local)

// topPair is a busy second of a server that has been up for three hours.
func topPair() (before, now topSample) {
	started := timestamppb.New(topTime.Add(-3*time.Hour - 12*time.Minute))
	bounds := []float64{0.5, 1, 2, 5, 10}
	return topSample{topTime.Add(-time.Second), &ckptdv1.GetStatusResponse{
			Version: "1.2.3", Started: started, Saves: 1_000_000, Loads: 5000, Errors: 7, Rejected: 100,
			StateBytes: 5e12, StoredBytes: 1e9, CacheHits: 1000, CacheMisses: 500, Groups: 1000, Grouped: 9000,
			SaveLatency:   &ckptdv1.Latency{BoundsMs: bounds, Counts: []uint64{1, 1, 1, 1, 1, 900}},
			LoadLatency:   &ckptdv1.Latency{BoundsMs: bounds, Counts: []uint64{5, 0, 0, 0, 0, 0}},
			CommitLatency: &ckptdv1.Latency{BoundsMs: bounds, Counts: make([]uint64, 6)},
		}}, topSample{topTime, &ckptdv1.GetStatusResponse{
			Version: "1.2.3", Started: started, Saves: 1_018_204, Loads: 5312, Errors: 7, Rejected: 103,
			InFlight: 13, Watchers: 1, Connections: 70,
			StateBytes: 5e12 + 1.8e9, StoredBytes: 1e9 + 18e6, CacheHits: 1991, CacheMisses: 509, CacheBytes: 61e6, Groups: 1100, Grouped: 10420,
			MemoryBytes: 212e6, DiskBytes: 1.4e9, Goroutines: 131,
			SaveLatency:   &ckptdv1.Latency{BoundsMs: bounds, Counts: []uint64{1, 501, 491, 6, 3, 900}},
			LoadLatency:   &ckptdv1.Latency{BoundsMs: bounds, Counts: []uint64{5, 0, 0, 0, 0, 0}},
			CommitLatency: &ckptdv1.Latency{BoundsMs: bounds, Counts: []uint64{90, 0, 0, 0, 0, 10}},
		}}
}

func TestTopLines(t *testing.T) {
	busy := viewBetween(topPair())
	curve := []topView{}
	for i := range 59 {
		v := topView{Saves: 18_204 * math.Abs(math.Sin(float64(i)/9))}
		curve = append(curve, v)
	}
	_, idle := topPair()
	quiet := viewBetween(topSample{topTime.Add(-time.Second), idle.status}, idle)
	for _, tt := range []struct {
		name  string
		last  []topView
		width int
		want  string
	}{
		{"busy", append(curve, busy), 80, `
ckptd 1.2.3 at unix:./data.sock, up 3h 12m                              08:41:07

saves         18,204 /s   ▅▆▆▇▇███████▇▇▇▆▅▅▄▃▃▂▁▂▂▃▄▅▅▆▆▇▇███████▇▇▇▆▆▅▄▄▃▂▁▁▂█
loads            312 /s
errors             0 /s
rejected         3.0 /s

                 p50        p99      p99.9
save          998 µs     2.0 ms     7.5 ms
load               –          –          –
commit        277 µs    > 10 ms    > 10 ms   14.2 commits a group

requests  12 in flight, 1 watcher, 70 connections
bytes     1.8 GB/s of states → 18 MB/s stored, 100.0 times smaller
cache     99.1 % hits, 61 MB
server    212 MB memory, 1.4 GB disk, 131 goroutines
`},
		{"quiet", []topView{quiet}, 80, `
ckptd 1.2.3 at unix:./data.sock, up 3h 12m                              08:41:07

saves              0 /s   ▁
loads              0 /s
errors             0 /s
rejected           0 /s

                 p50        p99      p99.9
save               –          –          –
load               –          –          –
commit             –          –          –

requests  12 in flight, 1 watcher, 70 connections
bytes     0 B/s of states → 0 B/s stored
cache     – hits, 61 MB
server    212 MB memory, 1.4 GB disk, 131 goroutines
`},
		{"narrow", []topView{busy}, 30, `
ckptd 1.2.3 at unix…  08:41:07

saves         18,204 /s
loads            312 /s
errors             0 /s
rejected         3.0 /s

                 p50        p…
save          998 µs     2.0 …
load               –         …
commit        277 µs    > 10 …

requests  12 in flight, 1 wat…
bytes     1.8 GB/s of states …
cache     99.1 % hits, 61 MB
server    212 MB memory, 1.4 …
`},
	} {
		lines := paint(false).topLines("unix:./data.sock", tt.last, tt.width)
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), strings.Join(lines, "\n")+"\n"); diff != "" {
			t.Errorf("%s:\n%s", tt.name, diff)
		}
	}
	for _, line := range paint(false).topLines(strings.Repeat("x", 200), append(curve, busy), 64) {
		if n := len([]rune(line)); n > 64 {
			t.Errorf("%d columns instead of 64: %q", n, line)
		}
	}
}

// Colours are for what is wrong.
func TestTopLinesInColour(t *testing.T) {
	v := viewBetween(topPair())
	all := strings.Join(paint(true).topLines("x", []topView{v}, 80), "\n")
	if !strings.Contains(all, "\x1b[33m       3.0 /s\x1b[0m") || strings.Contains(all, "\x1b[31m") {
		t.Errorf("a server that rejects and does not fail:\n%q", all)
	}
	v.Errors = 1
	if all := strings.Join(paint(true).topLines("x", []topView{v}, 80), "\n"); !strings.Contains(all, "\x1b[31m       1.0 /s\x1b[0m") {
		t.Errorf("a server that fails:\n%q", all)
	}
}

func TestTopLine(t *testing.T) {
	const want = "08:41:07  saves 18,204/s  loads 312/s  errors 0/s  rejected 3.0/s  save p50 998 µs p99 2.0 ms p99.9 7.5 ms  " +
		"commit p99 > 10 ms  group 14.2  in flight 12  stored 18 MB/s  cache 99.1 %  memory 212 MB"
	if diff := cmp.Diff(want, topLine(viewBetween(topPair()))); diff != "" {
		t.Error(diff)
	}
}

func TestViewBetween(t *testing.T) {
	before, now := topPair()
	whole := viewBetween(topSample{}, now)
	if want := 1_018_204 / (3*3600 + 12*60.0); math.Abs(whole.Saves-want) > 0.01 {
		t.Errorf("since the start: %v saves/s, want %v", whole.Saves, want)
	}
	now.status.Started = timestamppb.New(topTime.Add(-time.Hour * 24 * 400)) // a clock that is set anew, and counts that are smaller
	now.status.Saves, now.status.Errors = 40, 2
	if again := viewBetween(before, now); again.Saves != 40 || again.Errors != 2 || again.Save.P50 < 1.9 {
		t.Errorf("after it was started anew: %+v, save %+v", again, again.Save)
	}
	now.status.Started = before.status.Started
	if back := viewBetween(before, now); back.Saves != 0 {
		t.Errorf("a count that fell: %v saves/s", back.Saves)
	}
	now.status.SaveLatency.BoundsMs = nil
	if broken := viewBetween(before, now); broken.Save != nil {
		t.Errorf("a histogram without bounds: %+v", broken.Save)
	}
}

func TestTopHistory(t *testing.T) {
	status := func(saves int) *ckptdv1.GetStatusResponse {
		return &ckptdv1.GetStatusResponse{Started: timestamppb.New(topTime), Saves: uint64(saves)}
	}
	h := newTopHistory(topSample{topTime.Add(10 * time.Second), status(50)})
	if len(h.views) != 1 || h.views[0].Saves != 5 {
		t.Fatalf("at first: %+v, want what was before", h.views)
	}
	for i := 1; i <= 100; i++ {
		h.add(topSample{topTime.Add(time.Duration(10+i) * time.Second), status(50 + i*i)})
		if want := min(i, 60); len(h.views) != want {
			t.Fatalf("after %d s: %d views, want %d", i, len(h.views), want)
		}
		if got := h.views[len(h.views)-1].Saves; got != float64(2*i-1) {
			t.Fatalf("after %d s: %v saves/s, want %d", i, got, 2*i-1)
		}
	}
}

// While there is no answer, what is known stays.
func TestTopFrame(t *testing.T) {
	a, _ := topApp()
	views := []topView{viewBetween(topPair())}
	well, ill := a.topFrame(views, "")(80), a.topFrame(views, "it is\ngone\x1b[2J")(80)
	if well[1] != "" || ill[1] != `no answer: it is; gone\x1b[2J` {
		t.Errorf("second lines %q and %q", well[1], ill[1])
	}
	if diff := cmp.Diff(well[2:], ill[2:]); diff != "" || well[len(well)-1] != "q quits" {
		t.Error(diff)
	}
}

func TestScreenDraw(t *testing.T) {
	var b bytes.Buffer
	s := screen{out: bufio.NewWriter(&b), width: 5, height: 2}
	if err := s.draw(func(width int) []string { return []string{strings.Repeat("x", width), "y", "z"} }); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[Hxxxxx\x1b[K\r\ny\x1b[K\x1b[J"; b.String() != want {
		t.Errorf("drew %q, want %q", b.String(), want)
	}
}

func TestQuantile(t *testing.T) {
	bounds := []float64{1, 2, 4}
	for _, tt := range []struct {
		counts []uint64
		want   topLatency
	}{
		{[]uint64{100, 0, 0, 0}, topLatency{0.5, 0.99, 0.999, 4}},
		{[]uint64{0, 100, 0, 0}, topLatency{1.5, 1.99, 1.999, 4}},
		{[]uint64{98, 0, 2, 0}, topLatency{50.0 / 98, 3, 3.9, 4}},
		{[]uint64{0, 0, 0, 1}, topLatency{4, 4, 4, 4}},
	} {
		got := latencyBetween(nil, &ckptdv1.Latency{BoundsMs: bounds, Counts: tt.counts})
		for _, q := range [][2]float64{{got.P50, tt.want.P50}, {got.P99, tt.want.P99}, {got.P999, tt.want.P999}} {
			if math.Abs(q[0]-q[1]) > 1e-9 {
				t.Errorf("%v: %+v, want %+v", tt.counts, *got, tt.want)
			}
		}
	}
}

// topApp is an app that prints into a buffer.
func topApp() (*app, *bytes.Buffer) {
	var b bytes.Buffer
	return &app{out: bufio.NewWriter(&b)}, &b
}

// burst is a server that saves ten times between the first two looks and then no more, and fails
// after so many answers.
func burst(answers int) asker {
	n := 0
	started := timestamppb.Now()
	return func(context.Context) (*ckptdv1.GetStatusResponse, error) {
		if n++; n > answers {
			return nil, errors.New("it is gone")
		}
		return &ckptdv1.GetStatusResponse{Version: "1.2.3", Started: started, Saves: uint64(min(n, 2)) * 10}, nil
	}
}

func TestTopPrintsLines(t *testing.T) {
	a, out := topApp()
	err := a.top(t.Context(), burst(4), time.Millisecond, false)
	if err == nil || err.Error() != "asking the server: it is gone" {
		t.Errorf("a server that is gone: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("four answers are %d lines: %q", len(lines), out)
	}
	for i, line := range lines {
		if !strings.Contains(line, "  saves ") || strings.Contains(line, "saves 0/s") != (i > 0) {
			t.Errorf("line %d: %q", i, line)
		}
	}
}

func TestTopOnce(t *testing.T) {
	a, out := topApp()
	if err := a.top(t.Context(), burst(2), time.Millisecond, true); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "ckptd 1.2.3 at") || strings.Count(got, "\n") < 12 || strings.Contains(got, "q quits") {
		t.Errorf("printed\n%s", got)
	}
	a, out = topApp()
	a.json = true
	if err := a.top(t.Context(), burst(2), time.Millisecond, true); err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if rate, _ := v["saves_per_second"].(float64); rate <= 0 || v["version"] != "1.2.3" || v["save"] != nil {
		t.Errorf("printed %s", out)
	}
}

// Being interrupted is how it ends.
func TestTopInterrupted(t *testing.T) {
	for range 100 {
		a, _ := topApp()
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := a.top(ctx, func(ctx context.Context) (*ckptdv1.GetStatusResponse, error) {
			if n++; n == 2 {
				cancel()
			}
			return &ckptdv1.GetStatusResponse{}, ctx.Err()
		}, 10*time.Microsecond, false)
		if err != nil {
			t.Error(err)
		}
	}
}

// admin is a server that tells how it is doing, to those who have the token.
type admin struct {
	ckptdv1.UnimplementedAdminServiceHandler
}

func (admin) GetStatus(_ context.Context, req *connect.Request[ckptdv1.GetStatusRequest]) (*connect.Response[ckptdv1.GetStatusResponse], error) {
	if req.Header().Get("Authorization") != "Bearer secret" {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("no valid credentials"))
	}
	_, now := topPair()
	return connect.NewResponse(now.status), nil
}

func TestTopCommand(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(ckptdv1.NewAdminServiceHandler(admin{}))
	s := httptest.NewServer(mux)
	defer s.Close()
	run := func(args ...string) (string, error) {
		a, out := topApp()
		cmd := a.root()
		cmd.SetArgs(append([]string{"top", "--server", s.URL, "--interval", "100ms"}, args...))
		err := cmd.ExecuteContext(t.Context())
		a.out.Flush()
		return out.String(), err
	}
	if _, err := run("--once"); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("without a token: %v", err)
	}
	t.Setenv("CKPTD_TOKEN", "secret")
	if out, err := run("--once"); err != nil || !strings.HasPrefix(out, "ckptd 1.2.3 at "+s.URL+", up ") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run("--once", "--json"); err != nil || !strings.Contains(out, `"connections":70`) {
		t.Errorf("%v\n%s", err, out)
	}
}
