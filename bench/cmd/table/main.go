// Command table runs the benchmarks of this module and prints the goals of the engine and the
// daemon for docs/performance.md, in Markdown. Each row has the median of all runs, the target, and
// the command that runs only that benchmark.
//
//	go run ./cmd/table [-count 5] [-benchtime 1s] [-from FILE]
//
// With -from it reads the output of an earlier "go test -bench" instead.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
)

func main() {
	count := flag.Int("count", 5, "runs of each benchmark")
	benchtime := flag.String("benchtime", "1s", "minimum time of each run, or number of rounds (5x)")
	from := flag.String("from", "", "read this output of go test -bench instead of running it")
	flag.Parse()
	if err := run(*count, *benchtime, *from, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(count int, benchtime, from string, w io.Writer) error {
	results, err := measure(count, benchtime, from)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "Measured with %s on %s, %d cores (%s/%s); medians. ✗ marks a missed target.\n\n",
		runtime.Version(), results.cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintln(out, "| goal | figure | target | command |\n|---|---|---|---|")
	for _, r := range rows {
		fmt.Fprintln(out, r.line(results))
	}
	return out.Flush()
}

// measure runs the benchmarks and shows their output on standard error as it arrives.
func measure(count int, benchtime, from string) (*results, error) {
	if from != "" {
		file, err := os.Open(from)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return parse(file)
	}
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", ".", "-benchtime", benchtime,
		"-count", strconv.Itoa(count), "-timeout", "2h", ".")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("running the benchmarks: %w", err)
	}
	results, parseErr := parse(io.TeeReader(stdout, os.Stderr))
	if parseErr != nil {
		io.Copy(io.Discard, stdout)
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("running the benchmarks: %w", err)
	}
	return results, parseErr
}
