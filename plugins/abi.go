package plugins

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ckptd/ckptd/hook"
)

// Return codes of the host functions of ABI v1, besides lengths and 0.
const (
	codeDenied      = -1 // the plugin lacks the capability
	codeNoSuch      = -2 // slot
	codeLimit       = -3
	codeUnavailable = -5 // in this call
	minNeeded       = 16 // -n from here on: n bytes are needed
)

// Fuel costs of host functions: a call into Go and back, and the work on each byte. They are part
// of docs/plugins.md, because the fuel of a call is recorded.
const (
	costCall      = 100
	costCopyShift = 3 // 1/8 per byte copied
	costRedact    = 16
	costHash      = 1
	costHashCall  = 1000
	costBlob      = 4
)

const maxErrorText = 1 << 10

// maxRedact bounds the input of a single redact_builtin call.
const maxRedact = 4 << 20

// bytes returns a range of the guest's memory, valid until the guest resumes. If the range is out
// of bounds, it ends the call. The sum cannot wrap: both are 32 bits wide.
func (e *env) bytes(what string, ptr, n uint64) []byte {
	b, ok := e.memory.Read(uint32(ptr), uint32(n))
	if !ok {
		e.stop(hook.ErrTrap, "%s: a range outside its memory", what)
	}
	return b
}

// copied charges for copying n bytes.
func (e *env) copied(n int) { e.charge(uint64(n) >> costCopyShift) }

func (e *env) slot(n uint64) ([]byte, bool) {
	switch uint32(n) {
	case 0:
		return e.call.Payload, true
	case 1:
		return e.call.Meta, true
	case 2:
		return e.plugin.spec.Config, true
	}
	return nil, false
}

func (e *env) inputLen(s []uint64) {
	in, ok := e.slot(s[0])
	if !ok {
		s[0] = result64(codeNoSuch)
		return
	}
	s[0] = uint64(len(in))
}

func (e *env) inputRead(s []uint64) {
	in, ok := e.slot(s[0])
	to := e.bytes("input_read", s[2], s[3])
	switch {
	case !ok:
		s[0] = result(codeNoSuch)
		return
	case s[1] >= uint64(len(in)): // a negative offset is a large unsigned one
		s[0] = 0
		return
	}
	in = in[s[1]:]
	n := min(len(in), len(to), math.MaxInt32)
	e.copied(n)
	s[0] = uint64(copy(to, in[:n]))
}

func (e *env) outputWrite(s []uint64) {
	b := e.bytes("output_write", s[0], s[1])
	if int64(len(b)) > e.outputMax-int64(len(e.output)) {
		e.over = true
	}
	if e.over {
		s[0] = result(codeLimit)
		return
	}
	e.copied(len(b))
	e.output, e.wrote = append(e.output, b...), true
	s[0] = 0
}

func (e *env) errorSet(s []uint64) {
	b := e.bytes("error_set", s[1], s[2])
	e.errorText = printable(string(b[:min(len(b), maxErrorText)]), maxErrorText)
}

func (e *env) logLine(s []uint64) {
	b := e.bytes("log", s[1], s[2])
	e.copied(min(len(b), e.log.size))
	e.log.line(int32(s[0]), b)
}

// Findings of a call are aggregated. The number of distinct findings and the lengths of their names
// are bounded.
const (
	maxFindings = 256
	maxRule     = 64
	maxPath     = 256
)

func (e *env) finding(s []uint64) {
	rule, path := e.bytes("finding", s[0], s[1]), e.bytes("finding", s[2], s[3])
	count := int32(s[4])
	if count <= 0 {
		return
	}
	f := hook.Finding{Rule: printable(string(rule[:min(len(rule), maxRule)]), maxRule), Count: int(count)}
	if len(path) <= maxPath && len(path) > 0 && path[0] == '/' {
		f.Path = printable(string(path), maxPath)
	}
	e.charge(uint64(len(e.findings)))
	e.addFinding(f)
}

// addFinding aggregates findings with the same rule and path. When the table is full, its last
// entry absorbs all further ones.
func (e *env) addFinding(f hook.Finding) {
	at := slices.IndexFunc(e.findings, func(old hook.Finding) bool { return old.Rule == f.Rule && old.Path == f.Path })
	switch n := len(e.findings); {
	case at < 0 && n < maxFindings-1:
		e.findings = append(e.findings, f)
		return
	case at < 0 && n == maxFindings-1:
		e.findings = append(e.findings, hook.Finding{Rule: "other", Count: f.Count})
		return
	case at < 0:
		at = n - 1
	}
	e.findings[at].Count = min(e.findings[at].Count+f.Count, math.MaxInt32)
}

func (e *env) redactBuiltin(s []uint64) {
	set, data := e.bytes("redact_builtin", s[0], s[1]), e.bytes("redact_builtin", s[2], s[3])
	to := e.bytes("redact_builtin", s[4], s[5])
	switch {
	case !e.plugin.spec.Capabilities.RedactBuiltin:
		s[0] = result(codeDenied)
		return
	case e.call.Redact == nil:
		s[0] = result(codeUnavailable)
		return
	case len(data) > maxRedact:
		s[0] = result(codeLimit)
		return
	}
	e.charge(costRedact * uint64(len(data)))
	ctx, cancel := context.WithDeadline(e.ctx, e.deadline)
	out, err := e.call.Redact(ctx, string(set[:min(len(set), maxRule)]), data)
	cancel()
	if err != nil {
		e.check() // its deadline is the call's
		e.callbackFailed("redact_builtin", err)
	}
	if n := max(len(out), minNeeded); len(out) > len(to) {
		s[0] = result(-n)
		return
	}
	e.copied(len(out))
	s[0] = uint64(copy(to, out))
}

func (e *env) pseudonym(s []uint64) {
	data, to := e.bytes("pseudonym", s[1], s[2]), e.bytes("pseudonym", s[3], sha256.Size)
	switch {
	case !e.plugin.spec.Capabilities.Pseudonym:
		s[0] = result(codeDenied)
		return
	case e.call.PseudonymKey == [32]byte{}: // an unkeyed hash could be reversed by guessing
		s[0] = result(codeUnavailable)
		return
	}
	e.charge(costHashCall + costHash*uint64(len(data)))
	mac := hmac.New(sha256.New, e.call.PseudonymKey[:])
	mac.Write([]byte("ckptd plugin pseudonym v1\x00"))
	mac.Write(binary.BigEndian.AppendUint32(nil, uint32(s[0])))
	mac.Write(data)
	copy(to, mac.Sum(nil))
	s[0] = 0
}

func (e *env) blobPut(s []uint64) {
	data, to := e.bytes("blob_put", s[0], s[1]), e.bytes("blob_put", s[2], 32)
	switch {
	case !e.plugin.spec.Capabilities.PutBlob:
		s[0] = result(codeDenied)
		return
	case e.call.PutBlob == nil:
		s[0] = result(codeUnavailable)
		return
	}
	e.charge(costHashCall + costBlob*uint64(len(data)))
	id, err := e.call.PutBlob(data)
	switch {
	case errors.Is(err, hook.ErrLimit):
		s[0] = result(codeLimit)
	case err != nil:
		e.callbackFailed("blob_put", err)
	default:
		copy(to, id[:])
		s[0] = 0
	}
}

// abort is the import that AssemblyScript calls instead of trapping, with message, file, line and
// column. Strings are UTF-16, and the four bytes before a string hold its length in bytes.
func (e *env) abort(s []uint64) {
	e.log.line(logError, []byte(fmt.Sprintf("abort at line %d, column %d: %s", uint32(s[2]), uint32(s[3]), e.utf16(uint32(s[0])))))
	e.stop(hook.ErrTrap, "abort")
}

// callbackFailed ends the call with the error of a callback. The guest asked for a policy decision
// or for something to be stored, so it must not be able to carry on as if nothing had failed.
func (e *env) callbackFailed(what string, err error) {
	var he *hook.Error
	if errors.As(err, &he) {
		e.end(&stop{as: err})
	}
	e.end(&stop{kind: hook.ErrFailed, reason: what, cause: err})
}

func (e *env) stop(kind error, format string, args ...any) {
	e.end(&stop{kind: kind, reason: fmt.Sprintf(format, args...)})
}

// end leaves the guest. It does not return.
func (e *env) end(s *stop) {
	e.stopped = s
	panic(errStopped)
}

func result(code int) uint64   { return uint64(uint32(int32(code))) }
func result64(code int) uint64 { return uint64(int64(code)) }
