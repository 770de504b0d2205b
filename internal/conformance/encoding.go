package conformance

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// encoding is how a request came, and its answer goes.
type encoding struct {
	method      protoreflect.MethodDescriptor
	contentType string
	json        bool
	stream      bool // messages have envelopes
}

func newEncoding(req *http.Request) (*encoding, error) {
	name := strings.ReplaceAll(strings.TrimPrefix(req.URL.Path, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	method, ok := d.(protoreflect.MethodDescriptor)
	if err != nil || !ok {
		return nil, fmt.Errorf("unknown method %s", req.URL.Path)
	}
	e := &encoding{method: method, contentType: req.Header.Get("Content-Type"), stream: method.IsStreamingServer()}
	kind := strings.TrimPrefix(e.contentType, "application/")
	if e.stream {
		kind = strings.TrimPrefix(kind, "connect+")
	}
	if e.json = kind == "json"; !e.json && kind != "proto" {
		return nil, fmt.Errorf("the content type is %q: the suite speaks only Connect, as proto or JSON", e.contentType)
	}
	if zip := req.Header.Get("Content-Encoding") + req.Header.Get("Connect-Content-Encoding"); zip != "" && zip != "identity" {
		return nil, fmt.Errorf("the request is compressed with %q, which the suite does not support", zip)
	}
	return e, nil
}

// request reads the message of a request, as values of JSON.
func (e *encoding) request(body []byte) (values any, err error) {
	if e.stream {
		if len(body) < 5 || body[0] != 0 || len(body) != 5+int(binary.BigEndian.Uint32(body[1:])) {
			return nil, fmt.Errorf("the request is not one message in an envelope")
		}
		body = body[5:]
	}
	m := dynamicpb.NewMessage(e.method.Input())
	if e.json {
		err = protojson.Unmarshal(body, m)
	} else {
		err = proto.Unmarshal(body, m)
	}
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	return values, json.Unmarshal(text, &values)
}

// answer is an empty message for the answer.
func (e *encoding) answer() proto.Message { return dynamicpb.NewMessage(e.method.Output()) }

// unmarshal reads a message of a script.
func unmarshal(text []byte, m proto.Message) error {
	if len(text) == 0 {
		return nil
	}
	return protojson.Unmarshal(text, m)
}

// response is the whole answer. A stream that is open has no end.
func (e *encoding) response(messages []proto.Message, failed *Error, open bool) ([]byte, error) {
	if !e.stream && failed != nil {
		text, err := failed.text()
		return response(failed.status(), "application/json", text, true), err
	}
	var body bytes.Buffer
	for _, m := range messages {
		text, err := e.marshal(m)
		if err != nil {
			return nil, err
		}
		body.Write(e.envelope(0, text))
	}
	if e.stream && !open {
		end := []byte("{}")
		if failed != nil {
			text, err := failed.text()
			if err != nil {
				return nil, err
			}
			end = fmt.Appendf(nil, `{"error":%s}`, text)
		}
		body.Write(e.envelope(2, end))
	}
	return response(http.StatusOK, e.contentType, body.Bytes(), !open || !e.stream), nil
}

func (e *encoding) marshal(m proto.Message) ([]byte, error) {
	if e.json {
		return protojson.Marshal(m)
	}
	return proto.Marshal(m)
}

func (e *encoding) envelope(flag byte, text []byte) []byte {
	if !e.stream {
		return text
	}
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(text))), text...)
}

// response is an answer of HTTP/1.1. Of one that is not complete a byte is missing.
func response(status int, contentType string, body []byte, complete bool) []byte {
	size := len(body)
	if !complete {
		size++
	}
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", status, http.StatusText(status), contentType, size)
	return append([]byte(head), body...)
}

// text is the error as Connect has it.
func (e *Error) text() ([]byte, error) {
	d := &ckptdv1.ErrorDetail{}
	if err := unmarshal(e.Detail, d); err != nil {
		return nil, err
	}
	value, err := proto.Marshal(d)
	if err != nil {
		return nil, err
	}
	type detail struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	details := []detail{}
	if len(e.Detail) > 0 { // the daemon has none for an ended context
		details = append(details, detail{string(d.ProtoReflect().Descriptor().FullName()), base64.RawStdEncoding.EncodeToString(value)})
	}
	return json.Marshal(map[string]any{"code": e.Code, "message": e.Message, "details": details})
}

func (e *Error) status() int {
	switch e.Code {
	case "deadline_exceeded":
		return http.StatusGatewayTimeout
	case "resource_exhausted":
		return http.StatusTooManyRequests
	case "unavailable":
		return http.StatusServiceUnavailable
	case "aborted":
		return http.StatusConflict
	case "not_found":
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}
