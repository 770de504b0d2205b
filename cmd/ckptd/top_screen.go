package main

import (
	"bufio"
	"os"

	"golang.org/x/term"
)

const ctrlC = 0x03

// screen is the terminal while a command draws on all of it.
type screen struct {
	out           *bufio.Writer
	width, height int
	keys          chan byte // keys typed; none if standard input is not a terminal
	before        *term.State
}

// openScreen takes over the terminal. close restores its content.
func openScreen(out *bufio.Writer) (*screen, error) {
	s := &screen{out: out, keys: make(chan byte)}
	if isTerminal(os.Stdin) {
		before, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return nil, err
		}
		s.before = before
		go s.read()
	}
	s.resized()
	s.out.WriteString("\x1b[?1049h\x1b[?25l") // the other screen, no cursor
	if err := s.out.Flush(); err != nil {
		s.close()
		return nil, wroteOut(err)
	}
	return s, nil
}

// read passes on typed keys. It ends with the process.
func (s *screen) read() {
	var b [1]byte
	for {
		if n, err := os.Stdin.Read(b[:]); n == 1 {
			s.keys <- b[0]
		} else if err != nil {
			return
		}
	}
}

func (s *screen) close() {
	s.out.WriteString("\x1b[?25h\x1b[?1049l")
	s.out.Flush()
	if s.before != nil {
		term.Restore(int(os.Stdin.Fd()), s.before)
	}
}

// resized looks whether the terminal has another size than the last time.
func (s *screen) resized() bool {
	width, height := screenSize()
	changed := width != s.width || height != s.height
	s.width, s.height = width, height
	return changed
}

// draw replaces the lines drawn before by those for a width.
func (s *screen) draw(frame func(width int) []string) error {
	s.out.WriteString("\x1b[H")
	lines := frame(s.width)
	for i, line := range lines[:min(len(lines), s.height)] {
		if i > 0 {
			s.out.WriteString("\r\n")
		}
		s.out.WriteString(line + "\x1b[K") // and nothing behind it
	}
	s.out.WriteString("\x1b[J") // nor below
	return wroteOut(s.out.Flush())
}

// screenSize is that of the terminal on standard output, or an ordinary one.
func screenSize() (width, height int) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}
