package plugins

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ckptd/ckptd/hook"
)

// errStopped is the panic value with which host functions end a guest; the env holds the reason.
// The runtime recovers it.
var errStopped = errors.New("stopped by the host")

// stop is the reason why the host ended a guest.
type stop struct {
	kind   error
	reason string
	cause  error // another error to wrap, such as a context's
	as     error // if not nil, the error to return unchanged: a callback's own
}

// fail builds an error of a plugin outside any call.
func (s *Spec) fail(kind error, format string, args ...any) *hook.Error {
	return &hook.Error{Kind: kind, Plugin: s.Name, Reason: oneLine(fmt.Sprintf(format, args...))}
}

// failCall builds an error of a call.
func (p *Plugin) failCall(c *Call, kind error, format string, args ...any) *hook.Error {
	err := p.spec.fail(kind, format, args...)
	err.Stage, err.Item = c.Stage, c.Item
	return err
}

// named adds the plugin's name to an error about its module or its limits.
func (s *Spec) named(err error) error {
	kind := hook.ErrInvalid
	if errors.Is(err, hook.ErrLimit) {
		kind = hook.ErrLimit
	}
	var he *hook.Error
	if errors.As(err, &he) {
		return s.fail(kind, "%s", he.Reason)
	}
	return s.fail(kind, "%v", err)
}

// because wraps a second error, unless it is nil, and adds its text.
func because(err *hook.Error, cause error) error {
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// trapReason returns the first line of the runtime's message about a trap; the lines below it are
// function names.
func trapReason(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(strings.TrimPrefix(line, "wasm error: "), " (recovered by wazero)")
}

// oneLine bounds text that goes into an error and removes anything that could control a terminal.
func oneLine(s string) string { return printable(s, 512) }

// printable returns the first n bytes of a text at most, with unprintable characters replaced by a
// space or U+FFFD.
func printable(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}
