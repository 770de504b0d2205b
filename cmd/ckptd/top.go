package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

const (
	leastInterval = 100 * time.Millisecond
	askTimeout    = 5 * time.Second // for an answer of the server
)

func (a *app) topCmd() *cobra.Command {
	var every time.Duration
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live statistics of a server",
		Long: `Top polls a server every second and shows its rates, latencies and memory. On a terminal it updates
the screen until you press q; elsewhere it prints one line per interval. Without --server it polls
the server on DATA.sock, the default socket of ckptd serve.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < leastInterval {
				return usagef("--interval %v is shorter than %v", every, leastInterval)
			}
			if a.server.addr == "" {
				a.server.addr = "unix:" + a.base + ".sock"
			}
			a.server.attempts = 1 // top asks again by itself
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			return a.top(cmd.Context(), c.Status, every, once)
		},
	}
	cmd.Flags().DurationVar(&every, "interval", time.Second, "refresh `time`, such as 2s")
	cmd.Flags().BoolVar(&once, "once", false, "sample one interval, print it and exit")
	return cmd
}

// asker asks a server how it is doing.
type asker func(context.Context) (*ckptdv1.GetStatusResponse, error)

func (ask asker) sample(ctx context.Context) (topSample, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := ask(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v: %w", askTimeout, err)
	}
	return topSample{time.Now(), m}, err
}

// answer is a sample, or why there is none.
type answer struct {
	topSample
	err error
}

// every asks at each interval until ctx ends.
func (ask asker) every(ctx context.Context, interval time.Duration) <-chan answer {
	answers := make(chan answer)
	go func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			s, err := ask.sample(ctx)
			select {
			case answers <- answer{s, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return answers
}

// top shows the answers of ask until ctx ends, which is not an error.
func (a *app) top(ctx context.Context, ask asker, interval time.Duration, once bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, err := ask.sample(ctx)
	if err != nil {
		return fmt.Errorf("asking the server: %w", err)
	}
	answers := ask.every(ctx, interval)
	if !once && !a.json && isTerminal(os.Stdout) && os.Getenv("TERM") != "dumb" {
		return a.topScreen(ctx, first, answers)
	}
	for before := first; ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-answers:
			if now.err != nil {
				return fmt.Errorf("asking the server: %w", now.err)
			}
			if err := a.topPrint(viewBetween(before, now.topSample), once); err != nil || once {
				return err
			}
			before = now.topSample
		}
	}
}

// topPrint prints a view as one line or, if it is the only one, as topScreen would draw it.
func (a *app) topPrint(v topView, whole bool) (err error) {
	switch {
	case a.json:
		err = a.emit(v)
	case whole:
		width, _ := screenSize()
		for _, line := range a.paint.topLines(a.server.addr, []topView{v}, width) {
			err = a.printf("%s\n", line)
		}
	default:
		err = a.printf("%s\n", topLine(v))
	}
	if err != nil {
		return err
	}
	return wroteOut(a.out.Flush()) // somebody waits for it
}

// topScreen draws on the terminal until q or Ctrl-C is pressed. A server that does not answer is
// asked on.
func (a *app) topScreen(ctx context.Context, first topSample, answers <-chan answer) error {
	s, err := openScreen(a.out)
	if err != nil {
		return err
	}
	defer s.close()
	h, problem, fresh := newTopHistory(first), "", true
	look := time.NewTicker(leastInterval) // at the size of the terminal
	defer look.Stop()
	for {
		if fresh || s.resized() {
			fresh = false
			if err := s.draw(a.topFrame(h.views, problem)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case key := <-s.keys:
			if key == 'q' || key == 'Q' || key == ctrlC {
				return nil
			}
		case now := <-answers:
			fresh, problem = true, ""
			if now.err != nil {
				problem = now.err.Error()
			} else {
				h.add(now.topSample)
			}
		case <-look.C:
		}
	}
}

// topFrame is the screen for a width. A problem is shown near the top, where every terminal shows
// it.
func (a *app) topFrame(views []topView, problem string) func(width int) []string {
	return func(width int) []string {
		lines := a.paint.topLines(a.server.addr, views, width)
		if problem != "" {
			lines[1] = a.paint.with("31", cut("no answer: "+oneLine(problem), width))
		}
		return append(lines, "", a.paint.dim("q quits"))
	}
}
