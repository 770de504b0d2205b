package bundle

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckptd/ckptd/internal/schema"
)

func compileSchema(text []byte) (*schema.Schema, error) {
	doc, err := readJSON(text, maxSchema)
	if err != nil {
		return nil, err
	}
	if doc, err = canonical(doc, "", 0); err != nil { // also bounds depth and numbers
		return nil, err
	}
	return schema.Compile(doc)
}

// checkConfig checks JSON. Errors begin with the path in it, or with ": ".
func checkConfig(s *schema.Schema, config []byte) error {
	instance, err := readJSON(config, MaxConfig)
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	err = s.Check(context.Background(), instance)
	if e, ok := errors.AsType[*schema.Error](err); ok && e.Path != "" {
		return fmt.Errorf(" at %s: %s", e.Path, e.Reason)
	}
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	return nil
}
