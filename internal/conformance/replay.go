package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

// Replay serves the exchanges of a script, in their order, over the Connect protocol on HTTP/1.1.
type Replay struct {
	script *Script

	mu       sync.Mutex
	next     int
	due      time.Time // before it the client was asked not to come again
	bound    map[string]string
	problems []string
}

// noHash replaces the hash of a checkpoint, which is $hash in scripts.
var noHash = base64.StdEncoding.EncodeToString(make([]byte, 32))

// NewReplay begins a replay of a script.
func NewReplay(s *Script) *Replay {
	return &Replay{script: s, bound: map[string]string{"hash": noHash}}
}

// End returns the faults of the requests, including requests that are missing.
func (r *Replay) End() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.script.Exchanges); r.next < n {
		return append(r.problems, fmt.Sprintf("%d requests came, want %d", r.next, n))
	}
	return r.problems
}

func (r *Replay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	enc, err := newEncoding(req)
	if err != nil {
		r.refuse(w, err)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		r.refuse(w, err)
		return
	}
	if r.next == len(r.script.Exchanges) {
		r.refuse(w, fmt.Errorf("unexpected request: %s", req.URL.Path))
		return
	}
	x := &r.script.Exchanges[r.next]
	r.next++
	if err := r.judge(x, req, enc, body); err != nil {
		r.refuse(w, fmt.Errorf("request %d: %w", r.next, err))
		return
	}
	if err := r.answer(w, x, enc); err != nil {
		r.problems = append(r.problems, fmt.Sprintf("request %d: the script cannot be replayed: %v", r.next, err))
	}
}

// refuse answers a request that must not be, in a way that no client repeats.
func (r *Replay) refuse(w http.ResponseWriter, why error) {
	r.problems = append(r.problems, why.Error())
	http.Error(w, why.Error(), http.StatusNotImplemented)
}

// judge compares a request with the one that is expected.
func (r *Replay) judge(x *Exchange, req *http.Request, enc *encoding, body []byte) error {
	if want := "/ckptd.v1." + x.Method; req.URL.Path != want {
		return fmt.Errorf("it calls %s, want %s", req.URL.Path, want)
	}
	if early := time.Until(r.due); early > 0 {
		return fmt.Errorf("it comes %v too early: the server asked the client to wait", early)
	}
	got, err := enc.request(body)
	if err != nil || len(x.Expect) == 0 {
		return err
	}
	var want any
	if err := json.Unmarshal(x.Expect, &want); err != nil {
		return err
	}
	return r.match("", want, got)
}

// match compares the expected with the actual value: it ignores members that the script does not
// name, "" matches a missing value, and a text that begins with $ is a variable, which has the same
// value everywhere.
func (r *Replay) match(at string, want, got any) error {
	switch want := want.(type) {
	case map[string]any:
		have, _ := got.(map[string]any)
		for name, v := range want {
			if err := r.match(at+"/"+name, v, have[name]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		have, _ := got.([]any)
		if len(have) != len(want) {
			return fmt.Errorf("%s has %d items, want %d", at, len(have), len(want))
		}
		for i := range want {
			if err := r.match(fmt.Sprint(at, "/", i), want[i], have[i]); err != nil {
				return err
			}
		}
		return nil
	case string:
		have, _ := got.(string)
		if name, ok := strings.CutPrefix(want, "$"); ok {
			return r.bind(at, name, have)
		}
	}
	if got == nil && want == "" || fmt.Sprint(got) == fmt.Sprint(want) {
		return nil
	}
	return fmt.Errorf("%s is %v, want %v", at, got, want)
}

func (r *Replay) bind(at, name, have string) error {
	if _, known := r.bound[name]; !known {
		r.bound[name] = have
	}
	if have == "" || have != r.bound[name] {
		return fmt.Errorf("%s is %q, want %q as before", at, have, r.bound[name])
	}
	return nil
}

// answer answers a request as far as the script says, and closes the connection.
func (r *Replay) answer(w http.ResponseWriter, x *Exchange, enc *encoding) error {
	text, err := r.text(x, enc)
	if err != nil {
		return err
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	switch {
	case x.Cut == "before":
		return nil
	case x.Cut == "during":
		text = text[:len(text)-len(text)/4-1]
	}
	r.due = time.Time{}
	if x.Error != nil {
		d := &ckptdv1.ErrorDetail{}
		if err := unmarshal(x.Error.Detail, d); err != nil {
			return err
		}
		if d.GetRetryAfter() != nil {
			r.due = time.Now().Add(d.GetRetryAfter().AsDuration())
		}
	}
	_, err = conn.Write(text)
	return err
}

// text is the answer to a request, with its headers.
func (r *Replay) text(x *Exchange, enc *encoding) ([]byte, error) {
	if x.Proxy != 0 {
		return response(x.Proxy, "text/plain", []byte("busy"), true), nil
	}
	var messages []proto.Message
	for _, text := range x.Answers {
		m := enc.answer()
		if err := unmarshal(r.fillIn(text), m); err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return enc.response(messages, x.Error, x.Cut == "after")
}

// fillIn replaces variables in an answer by their values.
func (r *Replay) fillIn(text []byte) []byte {
	s := string(text)
	for name, v := range r.bound {
		s = strings.ReplaceAll(s, `"$`+name+`"`, `"`+v+`"`)
	}
	return []byte(s)
}
