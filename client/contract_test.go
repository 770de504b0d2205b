package client

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ckptd/ckptd/engine"
	"github.com/ckptd/ckptd/internal/contract"
	"github.com/ckptd/ckptd/internal/contract/contracttest"
)

// TestContractOfAnotherMethod calls a method that the client does not know. Whether a call without
// an answer is repeated, and left in doubt, comes from its rule.
func TestContractOfAnotherMethod(t *testing.T) {
	const rule = "needs: PERMISSION_READ on: SCOPE_THREAD "
	for _, tt := range []struct {
		rule, id string
		calls    int
		doubt    bool
	}{
		{rule + "retry: RETRY_READ", "", 3, false},
		{rule + "retry: RETRY_REPEAT", "", 3, true},
		{rule + `retry: RETRY_SAME_ID id: "id"`, "a", 3, true},
		{rule + `retry: RETRY_SAME_ID id: "id"`, "", 1, true},
		{rule + "retry: RETRY_NEVER", "a", 1, true},
	} {
		service, err := contracttest.Another(tt.rule)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Dial("http://localhost", Options{Attempts: 3})
		if err != nil {
			t.Fatal(err)
		}
		if s.api, err = contract.Read(service); err != nil {
			t.Fatal(err)
		}
		s.pause = func(context.Context, time.Duration) error { return nil }
		input := service.Methods().ByName("Touch").Input()
		m, calls := dynamicpb.NewMessage(input), 0
		m.Set(input.Fields().ByName("id"), protoreflect.ValueOfString(tt.id))
		_, err = call(t.Context(), s, func(context.Context, *connect.Request[dynamicpb.Message]) (*connect.Response[dynamicpb.Message], error) {
			calls++
			return nil, &connError{io.ErrUnexpectedEOF, true}
		}, m)
		if calls != tt.calls || errors.Is(err, engine.ErrAmbiguous) != tt.doubt || err == nil {
			t.Errorf("%s, id %q: %v after %d calls", tt.rule, tt.id, err, calls)
		}
		s.Close()
	}
}
