package sim

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
const always = "25"

// TestMutations injects bugs into the engine and requires the simulation to find each with the
// seeds of the regular tests: one bug, or those listed by number in SIM_MUTATIONS, where "all"
// means all of them.
func TestMutations(t *testing.T) {
	names := strings.Fields(os.Getenv("SIM_MUTATIONS"))
	if len(names) == 0 {
		names = []string{always}
	}
	if testing.Short() || os.Getenv("SIM_BROKEN") != "" {
		names = nil
	}
	mutation.Each(t, mutations, "../..", names, mustBeFound)
}

// mustBeFound runs the simulation on the code with the bug in it.
func mustBeFound(t *testing.T, m *mutation.Mutation, binary string) {
	began := time.Now()
	run := exec.Command(binary, "-test.run", "^TestSimulation$", "-test.v")
	run.Env = append(os.Environ(), "SIM_BROKEN=1", "SIM_TIME=", "SIM_SEED=")
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatalf("nobody noticed: %s\n%s", m.What, bytes.TrimSpace(out))
	}
	found := regexp.MustCompile(`(?s)sim\.Plan\{Seed: (\d+).*?:\n(.*?)\n`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("it failed, but not with a problem that was found:\n%s", out)
	}
	t.Logf("%s: found with seed %s in %v: %.300s", m.What, found[1], time.Since(began).Round(time.Second), bytes.TrimSpace(found[2]))
}
