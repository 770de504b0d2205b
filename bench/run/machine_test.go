package run

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

func TestCommitOf(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	for _, tt := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, ""},
		{[]debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}, "0123456789ab"},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, revision}, "0123456789ab with changes"},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, ""},
	} {
		if got := commitOf(tt.settings); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.settings, got, tt.want)
		}
	}
}

// The program built by the Makefile knows its commit, whatever GOFLAGS says.
func TestMakefileStamps(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	recipe := regexp.MustCompile(`(?m)^\tcd bench && CGO_ENABLED=0 go build (.*)-o ../bin/bench ./cmd/bench$`).FindSubmatch(makefile)
	if recipe == nil {
		t.Fatal("the Makefile does not build bin/bench as this test knows it")
	}
	if exec.Command("git", "rev-parse", "HEAD").Run() != nil {
		t.Skip("not a git checkout")
	}
	program := filepath.Join(t.TempDir(), "bench")
	args := append(append([]string{"build"}, strings.Fields(string(recipe[1]))...), "-o", program, "../cmd/bench")
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, out)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if commitOf(info.Settings) == "" {
		t.Errorf("built with %q, it does not know its commit", args)
	}
}
