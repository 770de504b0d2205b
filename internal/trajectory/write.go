package trajectory

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// location is the position of the placeholder for the messages in a run's Meta.
type location struct {
	at         int // index of the member
	start, end int // of the placeholder's text
	form       Form
}

// locate finds the placeholder in the Meta of a run: the first member that has one of the names for
// messages and holds one.
func locate(meta []byte) (location, bool) {
	dec := json.NewDecoder(bytes.NewReader(meta))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return location{}, false
	}
	for i := 0; dec.More(); i++ {
		key, err := dec.Token()
		if err != nil {
			return location{}, false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return location{}, false
		}
		if name, _ := key.(string); fieldRank(name) >= 0 {
			if f := placeholderForm(value); f != Auto {
				end := int(dec.InputOffset())
				return location{at: i, start: end - len(value), end: end, form: f}, true
			}
		}
	}
	return location{}, false
}

// FormOf returns the form of the file that a run with this Meta came from. It returns false if the
// run did not come from a file.
func FormOf(meta []byte) (Form, bool) {
	m, ok := locate(meta)
	return m.form, ok
}

// Join puts a run's messages, a JSON array, back into its Meta and returns the object. If Meta has
// no placeholder, the messages become a last member named messages, or the only one if Meta is
// empty.
func Join(meta, messages []byte) ([]byte, error) {
	if !json.Valid(messages) {
		return nil, errors.New("the messages are not JSON")
	}
	if m, ok := locate(meta); ok {
		b := make([]byte, 0, len(meta)+len(messages))
		b = append(append(b, meta[:m.start]...), messages...)
		return append(b, meta[m.end:]...), nil
	}
	meta = bytes.TrimSpace(meta)
	if len(meta) == 0 {
		meta = []byte("{}")
	}
	if meta[0] != '{' || !json.Valid(meta) {
		return nil, errors.New("the metadata is not a JSON object")
	}
	b := bytes.TrimSpace(meta[:len(meta)-1])
	b = append(make([]byte, 0, len(meta)+len(messages)+12), b...)
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(append(b, `"messages":`...), messages...)
	return append(b, '}'), nil
}

// Writer writes runs in one form. Arrays and objects are indented by two spaces, as in Python's
// json.dumps(indent=2), and end with a line feed.
type Writer struct {
	w    *bufio.Writer
	form Form
	n    int
}

// NewWriter returns a Writer for a form other than Auto. The output is complete only after Close.
func NewWriter(w io.Writer, form Form) *Writer {
	return &Writer{w: bufio.NewWriterSize(w, 64<<10), form: form}
}

// Write adds a run: its Meta and the array of its messages.
func (w *Writer) Write(meta, messages []byte) error {
	if w.form == Object && w.n > 0 {
		return fmt.Errorf("a file of form %s holds one run", w.form)
	}
	run, err := Join(meta, messages)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	switch w.form {
	case Array:
		if w.n == 0 {
			out.WriteString("[\n  ")
		} else {
			out.WriteString(",\n  ")
		}
		err = json.Indent(&out, run, "  ", "  ")
	case Object:
		err = json.Indent(&out, run, "", "  ")
		out.WriteByte('\n')
	default:
		err = json.Compact(&out, run)
		out.WriteByte('\n')
	}
	if err != nil {
		return fmt.Errorf("writing run: %w", err)
	}
	w.n++
	_, err = w.w.Write(out.Bytes())
	return err
}

// Close completes the file. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.form == Array && w.n == 0 {
		w.w.WriteString("[]\n")
	} else if w.form == Array {
		w.w.WriteString("\n]\n")
	}
	return w.w.Flush()
}
