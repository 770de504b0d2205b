package torture

import (
	"bytes"
	_ "embed"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ckptd/ckptd/internal/mutation"
)

//go:embed mutations.txt
var mutations string

// always is the mutation that every run of the tests tries.
const always = "1"

// brokenEnv is set where the code is broken on purpose.
const brokenEnv = "TORTURE_BROKEN"

// TestMutations puts bugs into the log, and wants the rows that it names to find each: one bug, or
// those that TORTURE_MUTATIONS names by number, with "all" for all of them.
func TestMutations(t *testing.T) {
	names := strings.Fields(os.Getenv("TORTURE_MUTATIONS"))
	if len(names) == 0 {
		names = []string{always}
	}
	if testing.Short() || raceEnabled || os.Getenv(brokenEnv) != "" {
		names = nil
	}
	mutation.Each(t, mutations, "../..", names, mustBeFound)
}

// mustBeFound runs rows on the code with the bug in it.
func mustBeFound(t *testing.T, m *mutation.Mutation, binary string) {
	what, rows, _ := strings.Cut(strings.TrimSuffix(m.What, "]"), " [")
	began := time.Now()
	run := exec.Command(binary, "-test.run", "^TestTorture$", "-test.v", "-test.failfast")
	run.Env = append(os.Environ(), brokenEnv+"=1", "TORTURE_ROW="+rows, "TORTURE_TIME=", "TORTURE_SEED=", "TORTURE_DIR="+t.TempDir())
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatalf("nobody noticed: %s\n%s", what, bytes.TrimSpace(out))
	}
	found := regexp.MustCompile(`row (\w+), seed (\d+): (.*)`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("it failed, but not with a problem that was found:\n%s", out)
	}
	t.Logf("%s: found by %s with seed %s in %v: %.300s", what, found[1], found[2], time.Since(began).Round(time.Second), found[3])
}
