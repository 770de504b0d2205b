package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a JSON Schema for the documents of a version. It may refer to nothing outside of itself.
type Schema struct {
	file     string
	compiled *jsonschema.Schema
}

// NewSchema compiles the schema in file, whose name is for messages. Drafts 4 to 2020-12 are understood.
func NewSchema(file string, data []byte) (*Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, invalid("schema %s: no valid JSON: %w", file, err)
	}
	const here = "schema.json"
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(here, doc); err != nil {
		return nil, invalid("schema %s: %w", file, err)
	}
	compiled, err := c.Compile(here)
	if err != nil {
		return nil, invalid("schema %s: %s", file, oneLine(err))
	}
	return &Schema{file: file, compiled: compiled}, nil
}

// noLoader keeps a schema from reading files and addresses.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside of the schema", url)
}

// Check checks a document. The error is a *StepError with the path of the first violation.
func (s *Schema) Check(d *Document) error {
	err := s.compiled.Validate(d.value)
	if err == nil {
		return nil
	}
	e := &StepError{Reason: "the outcome does not fit " + s.file + ": " + oneLine(err), Err: err}
	if v, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		for len(v.Causes) > 0 {
			v = v.Causes[0]
		}
		for _, key := range v.InstanceLocation {
			e.Path += "/" + escapePointer(key)
		}
	}
	return e
}

// oneLine is the last line of a message of the library, which is the innermost cause.
func oneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return strings.TrimLeft(lines[len(lines)-1], " -")
}
