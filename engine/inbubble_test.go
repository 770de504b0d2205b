package engine_test

import (
	"crypto/fips140"
	"testing"
	"testing/synctest"
)

// inBubble runs a test in a bubble of synctest. There the clock stands still, by which the FIPS
// module gathers entropy.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if fips140.Enabled() {
		t.Skip("the FIPS module finds no entropy where the clock stands still")
	}
	synctest.Test(t, f)
}
