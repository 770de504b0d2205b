package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptd/ckptd/bench/result"
	"github.com/ckptd/ckptd/bench/run"
)

func TestMain(m *testing.M) {
	run.Main()
	os.Exit(m.Run())
}

// bench runs a command line and returns its output.
func bench(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestList(t *testing.T) {
	out, err := bench(t, "list")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"chat", "multimodal", "ckptd-whole", "postgres-langgraph", "files"} {
		if !strings.Contains(out, "\n"+name+" ") {
			t.Errorf("%s is not listed in\n%s", name, out)
		}
	}
}

// A run writes its results in every form, along with a command line without paths to repeat it.
func TestRun(t *testing.T) {
	dir, input := t.TempDir(), filepath.Join(t.TempDir(), "mine.jsonl")
	if err := os.WriteFile(input, []byte(`{"messages":[{"role":"user"},{"role":"assistant"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := bench(t, "run", "--workload", "chat,mine", "--writers", "2", "--rival", "ckptd,files", "--rounds", "2", "--seconds", "0.05",
		"--size", "5000", "--input", input, "--out", dir, "--dir", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "chat") || !strings.Contains(out, "fdatasync") {
		t.Errorf("the report is\n%s", out)
	}
	file, err := os.Open(filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	found, err := result.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Points) != 4 || len(found.Points[0].Figures[result.SaveRate].Rounds) != 2 {
		t.Errorf("%d points, the first is %+v", len(found.Points), found.Points)
	}
	want := "bench run --rival ckptd,files --workload chat,mine --writers 2 --size 5000 --seconds 0.05 --rounds 2 --input mine=FILE"
	if found.Command != want {
		t.Errorf("the command is %q, want %q", found.Command, want)
	}
	for _, name := range []string{"bench.html", "bench.txt"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProfile(t *testing.T) {
	dir := t.TempDir()
	for _, loads := range []string{"--loads=false", "--loads"} {
		out, err := bench(t, "profile", "chat", "--seconds", "0.2", "--writers", "4", "--size", "5000", loads, "--out", dir, "--dir", t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, "allocations each") {
			t.Errorf("it says %s", out)
		}
		for _, name := range []string{"cpu.pprof", "allocs.pprof", "block.pprof", "mutex.pprof"} {
			file := filepath.Join(dir, name)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(data, []byte("\x1f\x8b")) { // a profile is compressed
				t.Errorf("%s is not a profile", name)
			}
			if !strings.Contains(out, "go tool pprof -http : "+file+"\n") {
				t.Errorf("it does not say how %s is opened: %s", name, out)
			}
		}
	}
}

func TestWrongArguments(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--set", "everything"}, "smoke"},
		{[]string{"run", "--rival", "oracle"}, "ckptd-whole"},
		{[]string{"run", "--workload", "games", "--rival", "files", "--seconds", "0.01"}, "branchy"},
		{[]string{"run", "--workload", "chat", "--writers", "0"}, "--writers"},
		{[]string{"run", "--part", "most"}, "growth"},
		{[]string{"profile", "games"}, "branchy"},
		{[]string{"profile"}, "arg"},
	} {
		_, err := bench(t, append(tt.args, "--out", t.TempDir())...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want something with %q", tt.args, err, tt.want)
		}
	}
}
