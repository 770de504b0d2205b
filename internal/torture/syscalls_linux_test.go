package torture

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// syscalls are the calls that strace has fail, of the whole process: also Badger's. For write(2),
// which the child uses for its pipe too, the file is named.
var syscalls = []struct{ name, file string }{
	{"fdatasync", ""}, {"fsync", ""}, {"msync", ""}, {"pwrite64", ""}, {"ftruncate", ""},
	{"renameat", ""}, {"unlinkat", ""}, {"linkat", ""}, {"mkdirat", ""}, {"write", "MANIFEST"},
}

// syscallsRound has the n-th call of a kind fail, once or from then on, in a process that commits.
// Its acknowledged commits are there afterwards, and after a commit with an unknown outcome it
// acknowledged none.
func syscallsRound(r *round) {
	if err := exec.Command("strace", "-qq", "-o", "/dev/null", "true").Run(); err != nil {
		r.skip("strace: %v", err)
		return
	}
	kind := syscalls[r.seed%uint64(len(syscalls))]
	if r.units < 1<<20 { // a few of each in the slice, also those of flushes, which come late
		for range 3 {
			if n := 1 + r.rnd.IntN(1<<r.rnd.IntN(7)); !r.Failed() {
				injected(r, kind.name, kind.file, r.rnd.IntN(2) == 0, n)
			}
		}
		return
	}
	for n := 1; injected(r, kind.name, kind.file, r.rnd.IntN(2) == 0, n) && !r.Failed(); n += 1 + n/3*r.rnd.IntN(2) {
	}
}

// injected reports whether the n-th call came.
func injected(r *round, name, file string, forGood bool, n int) bool {
	p, want := place(filepath.Join(r.dir, "store")), newBatches()
	r.must(os.RemoveAll(string(p)))
	r.must(os.MkdirAll(p.data(), 0o700))
	if r.rnd.IntN(2) == 0 { // the store is there already, and was not closed
		c, err := start(job{Kind: "commit", Place: p, Seed: r.rnd.Uint64(), Writers: 4, Ops: 20})
		r.must(err)
		follow(r, c, want, "before")
	}
	trace := filepath.Join(r.dir, "trace")
	errno, plus := []string{"EIO", "ENOSPC"}[r.rnd.IntN(2)], ""
	if forGood {
		plus = "+"
	}
	what := fmt.Sprintf("%s failing with %s, when=%d%s", name, errno, n, plus)
	words := []string{"strace", "-f", "-qq", "-o", trace, "-e", "trace=" + name, "-e", fmt.Sprintf("inject=%s:error=%s:when=%d%s", name, errno, n, plus)}
	if file != "" {
		words = append(words, "-P", p.path("data", file))
	}
	c, err := start(job{Kind: "commit", Place: p, Seed: r.rnd.Uint64(), Cycle: 1, Writers: 8, Ops: 150, Close: r.rnd.IntN(2) == 0}, words...)
	r.must(err)
	follow(r, c, want, what)
	b, err := p.openBackend()
	if err != nil {
		r.problem("%s: opening afterwards: %v", what, err)
		return false
	}
	for _, problem := range want.compare(b) {
		r.problem("%s: %s", what, problem)
	}
	r.must(b.Close())
	text, err := os.ReadFile(trace)
	r.must(err)
	fired := bytes.Contains(text, []byte("INJECTED"))
	if fired {
		r.did(name)
	}
	return fired
}

// follow takes in the messages of a child until it ends, or has done its work and is killed.
func follow(r *round, c *child, want *batches, what string) {
	hung := false
	limit := time.AfterFunc(patience, func() {
		hung = true
		c.Process.Kill()
	})
	defer limit.Stop()
	ready := 0
	for {
		l, err := c.next()
		if err != nil {
			break
		}
		want.take(l)
		switch {
		case l.Broken != "":
			r.count("commits that failed", 1)
		case l.WentOn:
			r.problem("%s: a commit was acknowledged after one had failed", what)
		case l.Failed != "":
			r.count("openings that failed", 1)
		case l.Stopped != "":
			r.count("closings that failed", 1)
		case l.Ready:
			if ready++; ready == 2 {
				c.in.Write([]byte("\n"))
			}
		}
	}
	switch text := c.complaint(); {
	case hung:
		r.problem("%s: it hung: %s", what, text)
	case text != "" && !strings.HasPrefix(text, "exit status 1"):
		r.problem("%s: %s", what, text)
	}
}
