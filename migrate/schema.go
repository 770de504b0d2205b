package migrate

import (
	"context"
	"errors"

	"github.com/ckptd/ckptd/internal/schema"
)

// Schema is a JSON Schema for the documents of a version. It may refer to nothing outside of itself.
type Schema struct {
	file  string
	rules *schema.Schema
}

// NewSchema compiles the schema in file, whose name is for messages. Drafts 4 to 2020-12 are understood.
func NewSchema(file string, data []byte) (*Schema, error) {
	rules, err := schema.Read(data)
	if err != nil {
		return nil, invalid("schema %s: %w", file, err)
	}
	return &Schema{file, rules}, nil
}

// Check checks a document, with as much work as the document is large. The error is a *StepError with the path of the
// first violation, or what ended the context. A number that is out of range of a float64, such as 1e4000000, is refused.
func (s *Schema) Check(ctx context.Context, d *Document) error {
	err := s.rules.Check(ctx, d.value)
	if e, ok := errors.AsType[*schema.Error](err); ok {
		return &StepError{Path: e.Path, Reason: "the outcome does not fit " + s.file + ": " + e.Reason, Err: err}
	}
	return err
}
