package server

import (
	"strings"
	"testing"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
	"github.com/ckptd/ckptd/engine"
)

// A page token can hold the longest names, whatever characters they consist of.
func TestPageTokenOfLongNames(t *testing.T) {
	p, err := newPages(&ckptdv1.ListRequest{}, func(*ckptdv1.ListRequest) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"a", "<", "\x01", "\u2028"} {
		name, long := strings.Repeat(c, engine.MaxName/len(c)), strings.Repeat(c, engine.MaxLongName/len(c))
		at := position{Ref: engine.Ref{Tenant: name, User: name, Thread: name, Namespace: long}, ID: name, Seq: 1 << 31, Generation: 1 << 63, Time: 1 << 47}
		token, err := p.token(at)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.parse(token); err != nil || got != at {
			t.Errorf("%q: a token of %d bytes: %v", c, len(token), err)
		}
	}
}
