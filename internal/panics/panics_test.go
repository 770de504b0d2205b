package panics

import (
	"errors"
	"strings"
	"testing"
)

func TestTry(t *testing.T) {
	plain := errors.New("plain")
	if err := Try(func() error { return plain }); err != plain {
		t.Errorf("an error becomes %v", err)
	}
	err := Try(func() error { panic("the state is secret") })
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Value != "the state is secret" || !strings.Contains(e.Stack, "TestTry") {
		t.Errorf("a panic becomes %v", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error quotes the panic: %v", err)
	}
}
