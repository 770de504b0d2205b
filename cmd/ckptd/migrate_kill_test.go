//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
)

// A run and an undo are killed at random points again and again, and go on: every thread is of the
// old version or of the new one meanwhile, and in the end all are what they were.
// CKPTD_CRASH_CYCLES says how many kills there are, 10 if it is not set.
func TestKilledMigration(t *testing.T) {
	cycles := 10
	if text := os.Getenv("CKPTD_CRASH_CYCLES"); text != "" {
		var err error
		if cycles, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	t.Parallel()
	const threads = 300
	dir := t.TempDir()
	data, steps := filepath.Join(dir, "data"), filepath.Join(dir, "steps")
	if err := os.MkdirAll(filepath.Join(steps, "support"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(steps, "support", "0002_count.jq"), []byte(".channels.state.n |= tonumber"), 0o666); err != nil {
		t.Fatal(err)
	}
	saveOldStates(t, dir, data, threads)
	before := headsOfAll(t, data)
	if len(before) != threads {
		t.Fatalf("%d threads", len(before))
	}
	rng := rand.New(rand.NewPCG(7, 8))
	run := func(kill bool, args ...string) (killed bool) {
		cmd := exec.Command(commandPath(t), append([]string{"migrate", "--data", data, "--migrations", steps}, args...)...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = io.Discard, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if kill { // the first moments are those of the program's start
			timer := time.AfterFunc(time.Duration(30+rng.IntN(150))*time.Millisecond, func() { cmd.Process.Kill() })
			defer timer.Stop()
		}
		err := cmd.Wait()
		if err == nil {
			return false
		}
		if cmd.ProcessState.Exited() {
			t.Fatalf("ckptd migrate %q: %v: %s", args, err, said.String())
		}
		return true
	}
	kills, partly := 0, 0
	for kills < cycles {
		for run(kills < cycles, "run", "--yes", "--throttle", "1500") {
			kills++
			partly += checkHeads(t, before, headsOfAll(t, data))
		}
		id := jobsOf(t, data)
		for run(kills < cycles, "undo", id, "--throttle", "1500") {
			kills++
			partly += checkHeads(t, before, headsOfAll(t, data))
		}
		if diff := cmp.Diff(before, headsOfAll(t, data)); diff != "" {
			t.Fatalf("after the undo (-before +after):\n%s", diff)
		}
		run(false, "finish", id)
	}
	t.Logf("%d kills, %d of them in the middle", kills, partly)
	s := openStore(t, data)
	defer s.Close()
	report, err := s.Upkeep().Verify(t.Context(), upkeep.VerifyOptions{Deep: true})
	if err != nil || !report.Clean() || report.Checkpoints != threads {
		t.Errorf("verify: %+v, %v", report, err)
	}
}

// saveOldStates saves threads of version 1.
func saveOldStates(t *testing.T, dir, data string, n int) {
	t.Helper()
	cmd := exec.Command(commandPath(t), "save", "--data", data, "t000", "state:json=-", "--kind", "support", "--schema", "1")
	cmd.Stdin = strings.NewReader(`{"n": "0"}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := openStore(t, data)
	defer s.Close()
	for i := 1; i < n; i++ {
		_, err := s.Thread(localRef(fmt.Sprintf("t%03d", i))).Save(t.Context(), engine.Draft{Kind: "support", SchemaVersion: 1,
			Channels: []engine.Change{{Name: "state", Type: "json", Data: fmt.Appendf(nil, `{"n": "%d"}`, i)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func localRef(thread string) engine.Ref {
	return engine.Ref{Tenant: "default", User: "local", Thread: thread}
}

// headsOfAll returns the newest state of every thread with its id, seq and version.
func headsOfAll(t *testing.T, data string) map[string]string {
	t.Helper()
	s := openStore(t, data)
	defer s.Close()
	all := map[string]string{}
	for info, err := range s.User("default", "local").Threads(t.Context(), engine.ThreadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		cp, err := s.Thread(info.Ref).Load(t.Context(), engine.Latest)
		if err != nil {
			t.Fatal(err)
		}
		if cp.SchemaVersion == 1 {
			all[info.Ref.Thread] = fmt.Sprintf("%s %d %s", cp.ID, cp.Seq, cp.Channels[0].Data)
		} else {
			all[info.Ref.Thread] = fmt.Sprintf("migrated %s %s", cp.Parent, cp.Channels[0].Data)
		}
	}
	return all
}

// checkHeads checks that every thread is as it was or migrated, and returns 1 if some are the one
// and some the other.
func checkHeads(t *testing.T, before, now map[string]string) int {
	t.Helper()
	migrated := 0
	for thread, was := range before {
		var n int
		fmt.Sscanf(thread, "t%d", &n)
		id, _, _ := strings.Cut(was, " ")
		switch now[thread] {
		case was:
		case fmt.Sprintf(`migrated %s {"n": %d}`, id, n):
			migrated++
		default:
			t.Fatalf("thread %s is %q", thread, now[thread])
		}
	}
	if migrated > 0 && migrated < len(before) {
		return 1
	}
	return 0
}

// jobsOf returns the id of the only job.
func jobsOf(t *testing.T, data string) string {
	t.Helper()
	out, err := exec.Command(commandPath(t), "migrate", "jobs", "--json", "--data", data).Output()
	var job struct{ ID string }
	if err != nil || json.Unmarshal(out, &job) != nil {
		t.Fatalf("jobs: %v, %s", err, out)
	}
	return job.ID
}
