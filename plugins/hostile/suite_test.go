package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// row is one attack.
type row struct {
	group   int
	name    string
	run     func(*bed)
	runaway bool // measures the time until the guest is stopped
	only    string
}

// Bounds asserted of every row, or of every runaway. The memory includes the guests' 256 MiB and
// everything outside: two concurrent calls with stacks of maximum depth, the compiler, and three
// copies of this program. It is not measured with the race detector.
const (
	watchdog  = time.Minute // ten minutes in campaigns
	mostRSS   = 768 << 20   // of the process and its workers together
	timeLimit = 500 * time.Millisecond
	mostTime  = 550 * time.Millisecond
	mostPause = 20 * time.Millisecond
)

func rows() []row {
	var all []row
	for i, group := range [][]row{binaryRows(), cpuRows(), memoryRows(), abiRows(), trapRows(), isolationRows(), policyRows(), mutationRows()} {
		for _, r := range group {
			r.group = i + 1
			all = append(all, r)
		}
	}
	return all
}

// No row gets lost unnoticed, and no two have the same name.
func TestRows(t *testing.T) {
	want := map[int]int{1: 45, 2: 14, 3: 9, 4: 28, 5: 8, 6: 9, 7: 6, 8: 2}
	got, names := map[int]int{}, map[string]bool{}
	for _, r := range rows() {
		got[r.group]++
		if names[r.name] {
			t.Errorf("two rows are named %s", r.name)
		}
		names[r.name] = true
	}
	for group := range 8 {
		if g := group + 1; got[g] != want[g] {
			t.Errorf("group %d has %d rows, want %d", g, got[g], want[g])
		}
	}
}

func TestHostile(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the suite looks at processes from outside, through /proc")
	}
	for _, r := range rows() {
		for _, mode := range []string{inProcess, inWorkers} {
			if r.only != "" && r.only != mode {
				continue
			}
			t.Run(fmt.Sprintf("%d/%s/%s", r.group, r.name, mode), func(t *testing.T) {
				if !r.runaway {
					t.Parallel()
				}
				r.check(t, mode)
			})
		}
	}
}

// check runs a row. A busy machine only ever makes single measurements longer, so the best of five
// counts.
func (r row) check(t *testing.T, mode string) {
	took, pause := watchdog, watchdog
	for range 5 {
		got, rss := r.spawn(t, mode)
		for _, f := range got.Failures {
			t.Error(f)
		}
		t.Logf("took %v, longest pause %v, %d MiB", got.Took.Round(time.Millisecond), got.Pause.Round(100*time.Microsecond), rss>>20)
		if rss > mostRSS && !raceEnabled {
			t.Errorf("%d MiB were resident, more than %d", rss>>20, mostRSS>>20)
		}
		took, pause = min(took, got.Took), min(pause, got.Pause)
		if t.Failed() || !r.runaway || raceEnabled || took <= mostTime && pause <= mostPause {
			return
		}
	}
	t.Errorf("the guest was stopped after %v (want %v), and the garbage collector paused for %v (want %v)", took, mostTime, pause, mostPause)
}

// spawn runs a row in a separate process and returns its report and peak resident size.
func (r row) spawn(t *testing.T, mode string) (got report, rss int64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "row", mode, r.name)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- json.NewDecoder(out).Decode(&got) }()
	patience := watchdog
	if os.Getenv("CKPTD_LONG") != "" {
		patience *= 10
	}
	deadline, look := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer look.Stop()
	for over := false; !over; {
		select {
		case err = <-done:
			over = true
		case <-look.C:
		case <-deadline:
			cmd.Process.Kill()
			t.Errorf("it hung for %v", patience)
			deadline = nil
		}
		rss = max(rss, resident(cmd.Process.Pid))
	}
	in.Close()
	if waited := cmd.Wait(); err != nil || waited != nil {
		t.Fatalf("the host did not survive: %v, %v\n%.2000s", err, waited, words.Bytes())
	}
	return got, rss
}

// resident returns the peak resident size of a process and its live children.
func resident(pid int) (n int64) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	status, _ := os.ReadFile(proc + "status")
	if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
		kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		size, _ := strconv.ParseInt(kib, 10, 64)
		n = size << 10
	}
	children, _ := os.ReadFile(proc + "task/" + strconv.Itoa(pid) + "/children")
	tasks, _ := os.ReadDir(proc + "task")
	for _, task := range tasks {
		if more, err := os.ReadFile(proc + "task/" + task.Name() + "/children"); err == nil && task.Name() != strconv.Itoa(pid) {
			children = append(children, more...)
		}
	}
	for _, child := range strings.Fields(string(children)) {
		if id, err := strconv.Atoi(child); err == nil {
			n += resident(id)
		}
	}
	return n
}
