package migrate

import (
	"context"
	"errors"

	"github.com/ckptd/ckptd/internal/schema"
)

// Schema is a JSON Schema for the documents of a version. It must not refer to anything outside
// itself.
type Schema struct {
	file  string
	rules *schema.Schema
}

// NewSchema compiles the schema in file, whose name appears in messages. It supports drafts 4 to
// 2020-12.
func NewSchema(file string, data []byte) (*Schema, error) {
	rules, err := schema.Read(data)
	if err != nil {
		return nil, invalid("schema %s: %w", file, err)
	}
	return &Schema{file, rules}, nil
}

// Check validates a document, with work proportional to its size. The error is a *StepError with
// the path of the first violation, or the reason why the context ended. A number out of the range
// of a float64, such as 1e4000000, is refused.
func (s *Schema) Check(ctx context.Context, d *Document) error {
	err := s.rules.Check(ctx, d.value)
	if e, ok := errors.AsType[*schema.Error](err); ok {
		return &StepError{Path: e.Path, Reason: "the outcome does not fit " + s.file + ": " + e.Reason, Err: err}
	}
	return err
}
