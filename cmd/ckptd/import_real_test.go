//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ckptd/ckptd/backend/badger"
	"github.com/ckptd/ckptd/crypto"
	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/engine/upkeep"
	"github.com/ckptd/ckptd/internal/trajectory"
)

// The 200 real runs go in through the command and come out again: every checkpoint byte for byte,
// the whole as the same file.
func TestImportOfRealRuns(t *testing.T) {
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "shared", "data", "tau-bench", "gpt-4o-airline.json"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the tau-bench runs are not there: ", path)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	dir := t.TempDir()
	ckptd := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(commandPath(t), args...)
		cmd.Dir = dir
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("ckptd %q: %v: %s", args, err, stderr.String())
		}
		return out
	}
	t.Logf("%s", ckptd("import", path))
	t.Logf("%d bytes of blocks in the data directory, keys and indexes included", allocated(t, filepath.Join(dir, "data")))

	states := 0
	s := openStore(t, filepath.Join(dir, "data"))
	for run, err := range trajectory.Parse(bytes.NewReader(want), trajectory.Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		states += checkRun(t, s, run)
	}
	if states != 5308 {
		t.Errorf("%d checkpoints, want 5308", states)
	}
	report, err := s.Upkeep().Verify(context.Background(), upkeep.VerifyOptions{Deep: true})
	if err != nil || !report.Clean() || report.Checkpoints != 5308 {
		t.Errorf("verify: %+v, %v", report, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ckptd("export", "gpt-4o-airline"); !bytes.Equal(got, want) {
		t.Error("export is not the input")
	}
}

// commandPath returns the ckptd that the scripts run.
func commandPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("ckptd")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func openStore(t *testing.T, data string) *engine.Store {
	t.Helper()
	root, err := crypto.ReadKeyFile(data + ".key")
	if err != nil {
		t.Fatal(err)
	}
	keystore, err := crypto.OpenFileKeystore(data+".keys", false)
	if err != nil {
		t.Fatal(err)
	}
	be, err := badger.Open(data, badger.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := engine.Open(context.Background(), be, engine.Options{Root: root, Keystore: keystore})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkRun compares every checkpoint of a run and returns their number.
func checkRun(t *testing.T, s *engine.Store, run *trajectory.Run) int {
	t.Helper()
	im := importer{app: &app{tenant: "default", user: "local"}}
	name := jobName("gpt-4o-airline", run)
	th := s.Thread(im.thread(name))
	n := 0
	for cp, err := range th.History(context.Background(), engine.HistoryOptions{Data: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		messages, _ := cp.Channel(messagesChannel)
		status := engine.StatusRunning
		if int(cp.Step) == len(run.Messages)-1 {
			status = run.Status
		}
		if !bytes.Equal(messages.Data, trajectory.State(run.Messages[:cp.Step+1])) || !bytes.Equal(cp.Meta, run.Meta) || cp.Status != status {
			t.Errorf("%s step %d (%s) is not what was saved", name, cp.Step, cp.Status)
		}
	}
	if n != len(run.Messages) {
		t.Errorf("%s: %d checkpoints of %d messages", name, n, len(run.Messages))
	}
	return n
}

// allocated returns the bytes of the blocks that the files below dir take.
func allocated(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += st.Blocks * 512
		} else {
			sum += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// An import that is killed goes on where it stopped; nothing that a reader could see of it is
// wrong.
func TestImportGoesOnAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "runs.jsonl")
	var lines bytes.Buffer
	w := trajectory.NewWriter(&lines, trajectory.Lines)
	for range 20 {
		var messages []byte
		for i := range 60 {
			messages = append(messages, []byte(`,{"role":"user","content":"message `+string(rune('a'+i%26))+`"}`)...)
		}
		messages[0] = '['
		if err := w.Write(nil, append(messages, ']')); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(file, lines.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	kills := 0
	for delay := 60 * time.Millisecond; ; delay += 40 * time.Millisecond {
		cmd := exec.Command(commandPath(t), "import", file)
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(delay, func() { cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != -1 {
			t.Fatalf("import after %d kills: %v", kills, err)
		}
		if kills++; kills > 200 {
			t.Fatal("the import does not get on")
		}
	}
	t.Logf("%d kills", kills)
	for _, args := range [][]string{{"verify", "--deep"}, {"export", "runs"}} {
		cmd := exec.Command(commandPath(t), args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("ckptd %q: %v", args, err)
		}
		if args[0] == "export" && !bytes.Equal(out, lines.Bytes()) {
			t.Error("export is not the input")
		}
	}
}
