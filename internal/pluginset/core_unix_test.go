//go:build unix

package pluginset

import (
	"path/filepath"
	"syscall"
	"testing"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// As soon as there are plugins, a crash leaves no core dump.
func TestNoCoreDumps(t *testing.T) {
	s := open(t, Options{Dir: filepath.Join(t.TempDir(), "plugins")})
	must[*ckptdv1.Plugin](t)(s.InstallPlugin(t.Context(), &ckptdv1.InstallPluginRequest{Builtin: "redact"}))
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &l); err != nil || l.Cur != 0 || l.Max != 0 {
		t.Errorf("core dumps of up to %d bytes, %v", l.Cur, err)
	}
}
