package telemetry

import (
	"strings"

	"connectrpc.com/connect"

	"github.com/ckptd/ckptd/internal/contract"
)

const unknown = "unknown"

// names are the values that labels and attributes can have. Names made up by a caller are not among
// them.
type names struct {
	methods map[string]string // by path
	codes   map[string]bool
}

func newNames() names {
	n := names{map[string]string{}, map[string]bool{"ok": true}}
	for _, m := range contract.API.Methods() {
		n.methods[m.Procedure] = strings.TrimPrefix(m.Procedure, "/")
	}
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		n.codes[code.String()] = true
	}
	return n
}

// method is the name of the method at a path.
func (n *names) method(path string) string {
	if name, ok := n.methods[path]; ok {
		return name
	}
	return unknown
}

// code is an RPC code that exists.
func (n *names) code(code string) string {
	if n.codes[code] {
		return code
	}
	return unknown
}

// ownFault reports whether an RPC code says that something is wrong with the server, and not with
// the request.
func ownFault(code string) bool {
	switch code {
	case "unknown", "deadline_exceeded", "unimplemented", "internal", "unavailable", "data_loss":
		return true
	}
	return false
}
