package main

import (
	"fmt"
	"testing"

	"github.com/ckptd/ckptd/backend"
)

// Each way in which a directory can be wrong has an exit code of its own, when it is opened and
// when it is looked at.
func TestExitCodesOfDirectories(t *testing.T) {
	seen := map[int]error{}
	for _, is := range []error{backend.ErrLocked, backend.ErrForeign, backend.ErrCorrupt, backend.ErrLostCommits, backend.ErrForeignLog,
		backend.ErrNoLog, backend.ErrNewerLog, errNoStore, errWitness} {
		opening := fmt.Errorf("opening store in data: %w: why", is)
		code, _ := explain(opening)
		if other, ok := seen[code]; ok || code == exitError {
			t.Errorf("%v has exit code %d, as has %v", is, code, other)
		}
		seen[code] = is
		if looking, _ := explain(diagnosedError{"data", opening}); looking != code {
			t.Errorf("%v: exit code %d from doctor, %d from opening", is, looking, code)
		}
	}
}
