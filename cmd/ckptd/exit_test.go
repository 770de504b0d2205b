package main

import (
	"strings"
	"testing"

	"github.com/ckptd/ckptd/internal/wire"
)

// Whatever a server may answer has an exit code of its own kind and says what happened.
func TestExitCodesOfTheWire(t *testing.T) {
	listed := map[int]bool{}
	for _, e := range exitCodes {
		listed[e.code] = true
	}
	for _, row := range wire.Table() {
		err := wire.UnpackError(wire.PackError(row.Err))
		code, line := explain(err)
		if code == exitOK || code == exitError || !listed[code] {
			t.Errorf("%v (%v): exit code %d", row.Reason, err, code)
		}
		if line == "" || strings.Contains(line, "\n") {
			t.Errorf("%v: says %q", row.Reason, line)
		}
	}
}

func TestTimeOfPrefix(t *testing.T) {
	const id = "0193a5b2-7c31-7abc-8def-0123456789ab"
	const ms = 0x0193a5b27c31
	for n := leastPrefix; n <= len(id); n++ {
		since, until, ok := timeOf(id[:n])
		if !ok || since.UnixMilli() > ms || until.UnixMilli() <= ms {
			t.Errorf("%s: %v to %v", id[:n], since, until)
		}
	}
	if _, _, ok := timeOf("my-checkpoint"); ok {
		t.Error("a name has a time")
	}
}
