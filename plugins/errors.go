package plugins

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ckptd/ckptd/hook"
)

// errStopped is what host functions panic with to end a guest; why is in the env. The runtime recovers it.
var errStopped = errors.New("stopped by the host")

// stop is why the host ended a guest.
type stop struct {
	kind   error
	reason string
	cause  error // more to wrap, such as that of a context
	as     error // if not nil, the error as it is: a callback's own
}

// fail makes the error of a plugin outside of a call.
func (s *Spec) fail(kind error, format string, args ...any) *hook.Error {
	return &hook.Error{Kind: kind, Plugin: s.Name, Reason: oneLine(fmt.Sprintf(format, args...))}
}

// failCall makes the error of a call.
func (p *Plugin) failCall(c *Call, kind error, format string, args ...any) *hook.Error {
	err := p.spec.fail(kind, format, args...)
	err.Stage, err.Item = c.Stage, c.Item
	return err
}

// named gives an error of a module or its limits the name of the plugin.
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

// because wraps a second error, unless it is nil, and says so.
func because(err *hook.Error, cause error) error {
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// trapReason is the first line of what the runtime says of a trap; below it are the names of functions.
func trapReason(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(strings.TrimPrefix(line, "wasm error: "), " (recovered by wazero)")
}

// oneLine bounds what goes into an error, and takes what could steer a terminal out of it.
func oneLine(s string) string { return printable(s, 512) }

// printable returns the beginning of a text, of at most n bytes, in which what is not printable is a space or U+FFFD.
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
