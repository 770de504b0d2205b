package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ckptd/ckptd/hook"
)

// Bounds of a configuration and its schema.
const (
	MaxConfig = 256 << 10 // bytes of JSON
	maxSchema = 256 << 10
	maxDepth  = 64
)

// Config returns the configuration of the plugin as canonical JSON: the manifest's defaults with
// over applied as a JSON merge patch (RFC 7396), so null removes a default. It is checked against
// the schema. Without defaults, over and schema it is nil. Errors are *hook.Error of the kind
// ErrInvalid and give the path within the configuration.
//
// Canonical JSON has no white space, sorts members by the bytes of their names, and writes numbers
// in their shortest form.
func (b *Bundle) Config(over []byte) ([]byte, error) {
	fail := func(format string, args ...any) ([]byte, error) {
		return nil, &hook.Error{Kind: hook.ErrInvalid, Plugin: b.Name(), Reason: oneLine(fmt.Sprintf(format, args...))}
	}
	if b.Manifest.Config == nil && len(over) == 0 && b.schema == nil {
		return nil, nil
	}
	config, err := merged(b.Manifest.Config, over)
	if err != nil {
		return fail("its configuration%v", err)
	}
	if b.schema != nil {
		if err := checkConfig(b.schema, config); err != nil {
			return fail("its configuration does not fit %s%v", b.Manifest.ConfigSchema, err)
		}
	}
	return config, nil
}

// merged applies a merge patch to the defaults and returns canonical JSON. The patch must be an
// object or empty. Errors begin with the path, or with ": ".
func merged(defaults map[string]any, over []byte) ([]byte, error) {
	if defaults == nil {
		defaults = map[string]any{}
	}
	base, err := canonical(defaults, "", 0)
	if err != nil {
		return nil, err
	}
	if len(over) > 0 {
		patch, err := readJSON(over, MaxConfig)
		if err != nil {
			return nil, fmt.Errorf(": %w", err)
		}
		if _, ok := patch.(map[string]any); !ok {
			return nil, errors.New(": it is not a JSON object")
		}
		if patch, err = canonical(patch, "", 0); err != nil {
			return nil, err
		}
		base = mergePatch(base, patch)
	}
	out, err := encode(base)
	if err == nil && len(out) > MaxConfig {
		err = fmt.Errorf(": it has %d bytes, more than the limit of %d", len(out), MaxConfig)
	}
	return out, err
}

// mergePatch implements RFC 7396.
func mergePatch(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	old, _ := target.(map[string]any)
	result := make(map[string]any, len(old)+len(changes))
	for name, value := range old {
		result[name] = value
	}
	for name, value := range changes {
		if value == nil {
			delete(result, name)
		} else {
			result[name] = mergePatch(result[name], value)
		}
	}
	return result
}

// canonical returns a value of JSON or TOML with its numbers in canonical form.
func canonical(v any, path string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s: it is nested more than %d deep", path, maxDepth)
	}
	switch v := v.(type) {
	case nil, bool, string:
		return v, nil
	case int64:
		return json.Number(strconv.FormatInt(v, 10)), nil
	case float64:
		return number(strconv.FormatFloat(v, 'g', -1, 64), path)
	case json.Number:
		return number(string(v), path)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			var err error
			if list[i], err = canonical(v[i], fmt.Sprintf("%s/%d", path, i), depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		object := make(map[string]any, len(v))
		for name := range v {
			var err error
			if object[name], err = canonical(v[name], path+"/"+escaped(name), depth+1); err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	return nil, fmt.Errorf("%s: dates and times are not JSON: write it as a string", path)
}

// number puts a number in canonical form. Integers keep all their digits, however many; other
// numbers are formatted by encoding/json.
func number(text, path string) (json.Number, error) {
	if len(text) <= 40 && strings.Trim(text, "-0123456789") == "" {
		if text == "-0" {
			text = "0"
		}
		return json.Number(text), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || len(text) > 400 {
		return "", fmt.Errorf("%s: the number is out of range: write it as a string", path)
	}
	short, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("%s: the number is not valid in JSON: write it as a string", path)
	}
	if string(short) == "-0" {
		short = []byte("0")
	}
	return json.Number(short), nil
}

// escaped returns a member name as written in a JSON pointer.
func escaped(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// readJSON reads one value and keeps the text of its numbers.
func readJSON(text []byte, most int) (any, error) {
	if len(text) > most {
		return nil, fmt.Errorf("it has %d bytes, more than the limit of %d", len(text), most)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("extra data after the value")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	return v, nil
}
