package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress shows how far a long command is, on a terminal and nowhere else.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress starts a bar of total steps or bytes; -1 means unknown.
func newProgress(total int64, what string, bytes bool) *progress {
	if !isTerminal(os.Stderr) || os.Getenv("TERM") == "dumb" {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetElapsedTime(false))}
}

// add moves the bar on. It may be called by many goroutines.
func (p *progress) add(n int) {
	if p.bar != nil {
		p.bar.Add(n)
	}
}

// set moves the bar to a place, of a total that may only be known by now.
func (p *progress) set(done, total int64) {
	if p.bar != nil {
		p.bar.ChangeMax64(total)
		p.bar.Set64(done)
	}
}

// step counts a finished item, if the total is unknown.
func (p *progress) step(what string) {
	if p.bar != nil {
		p.bar.Describe(what)
		p.bar.Add(1)
	}
}

// clear takes the bar off the screen, so that a line can be printed.
func (p *progress) clear() {
	if p.bar != nil {
		p.bar.Clear()
	}
}

// end takes the bar off the screen for good.
func (p *progress) end() {
	if p.bar != nil {
		p.bar.Finish()
		p.bar.Clear()
	}
}

// reader counts the bytes read through it.
func (p *progress) reader(r io.Reader) io.Reader {
	if p.bar == nil {
		return r
	}
	return &countingReader{r, p}
}

type countingReader struct {
	io.Reader
	p *progress
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.p.add(n)
	return n, err
}
