package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/ckptd/ckptd/internal/access"
	"github.com/ckptd/ckptd/internal/contract"
	"github.com/ckptd/ckptd/internal/wire"
)

// TestExamplesOfTheAPI runs the examples of docs/api.md in one shell, in their order, and compares
// the answers.
func TestExamplesOfTheAPI(t *testing.T) {
	bash := need(t, "bash")
	for _, tool := range []string{"curl", "od", "dd", "sed", "openssl", "base64"} {
		need(t, tool)
	}
	all := blocks(document(t, "docs/api.md"))
	dir, address := startServer(t)
	var script strings.Builder
	scripts := 0
	for _, b := range all {
		if b.language == "sh" {
			fmt.Fprintf(&script, "%s\nprintf '\\n%s%%s\\n' %d\n", strings.ReplaceAll(b.text, "127.0.0.1:7420", address), mark, scripts)
			scripts++
		}
	}
	cmd := exec.CommandContext(t.Context(), bash, "-uc", script.String())
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || said.Len() > 0 {
		t.Fatalf("the examples fail: %v\n%s", err, said.String())
	}
	answers := regexp.MustCompile(`\n`+mark+`\d+\n`).Split(string(out), -1)
	if len(answers) != scripts+1 {
		t.Fatalf("%d scripts have %d answers", scripts, len(answers)-1)
	}
	shown, next := map[string]bool{}, 0
	for i, b := range all {
		if b.language != "sh" {
			continue
		}
		answer := answers[next]
		next++
		if i+1 == len(all) || all[i+1].language == "sh" {
			continue // prepares something
		}
		if strings.Contains(b.text, "."+b.section+"/"+b.heading+" ") {
			shown[b.section+"/"+b.heading] = true
		}
		compareAnswer(t, all[i+1], answer)
	}
	for _, method := range methods() {
		if !shown[method] {
			t.Errorf("%s has no example with an answer", method)
		}
	}
}

// mark ends the output of a script.
const mark = "@@@ "

func need(t *testing.T, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	if err != nil {
		t.Skipf("SKIPPED: there is no %s to run the examples with", tool)
	}
	return path
}

// startServer starts ckptd serve --data ./data in an empty folder, on any port.
func startServer(t *testing.T) (dir, address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckptd") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "ckptd", "serve", "--data", "./data", "--listen", "127.0.0.1:0")
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Cancel()
		cmd.Wait()
		os.RemoveAll(dir)
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, found, ok := strings.Cut(lines.Text(), "address http://"); ok {
			go io.Copy(io.Discard, out)
			return dir, found
		}
	}
	t.Fatal("the server does not start")
	return "", ""
}

// methods are the methods of the API, as SERVICE/METHOD.
func methods() (all []string) {
	for _, s := range contract.Services() {
		for i := range s.Methods().Len() {
			all = append(all, fmt.Sprintf("%s/%s", s.Name(), s.Methods().Get(i).Name()))
		}
	}
	return all
}

// compareAnswer compares an answer with the block that documents it.
func compareAnswer(t *testing.T, want block, got string) {
	t.Helper()
	if want.language != "json" {
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want.text), " ") {
			t.Errorf("docs/api.md:%d: the answer is\n%s", want.line, got)
		}
		return
	}
	documented, err := values(want.text)
	if err != nil {
		t.Fatalf("docs/api.md:%d: %v", want.line, err)
	}
	answered, err := values(got)
	if err != nil {
		t.Fatalf("docs/api.md:%d: the answer is no JSON: %v\n%s", want.line, err, got)
	}
	if diff := cmp.Diff(documented, keptAs(documented, answered)); diff != "" {
		t.Errorf("docs/api.md:%d: (-documented +answered)\n%s", want.line, diff)
	}
}

// values reads JSON values, one after the other. Of those that vary only the kind is left.
func values(text string) (any, error) {
	var all []any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for {
		var v any
		if err := d.Decode(&v); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, steady(v))
	}
}

// varying are the texts that differ from run to run.
var varying = []struct {
	text *regexp.Regexp
	kind string
}{
	{regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`), "a time"},
	{regexp.MustCompile(`^[0-9a-f]{64}$`), "an id of a blob"},
	{regexp.MustCompile(`^[0-9a-f]{32}$`), "a pseudonym"},
	{regexp.MustCompile(`^\d{12,20}$`), "a version"},
	{regexp.MustCompile(`^[A-Za-z0-9+/]{43}=$`), "a hash"},
	{regexp.MustCompile(`^[0-9a-f]{8}$`), "an id of a token"},
	{regexp.MustCompile(`^ckptd_[0-9A-Za-z]{49}$`), "a secret"},
	{regexp.MustCompile(`^token:[0-9a-f]{8}$`), "a token"},
	{regexp.MustCompile(`^peer:\d+$`), "a peer"},
}

func steady(v any) any {
	switch v := v.(type) {
	case string:
		for _, kind := range varying {
			if kind.text.MatchString(v) {
				return kind.kind
			}
		}
	case []any:
		for i := range v {
			v[i] = steady(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = steady(v[k])
		}
	}
	return v
}

// elided stands in a documented answer for a value, for the other members of an object, and for the
// rest of a list.
const elided = "…"

// keptAs returns an answer with what its documentation leaves out replaced as there.
func keptAs(documented, answered any) any {
	switch want := documented.(type) {
	case string:
		if want == elided && answered != nil {
			return elided
		}
	case []any:
		got, ok := answered.([]any)
		if !ok {
			return answered
		}
		if n := len(want); n > 0 && want[n-1] == elided && len(got) >= n-1 {
			got = append(slices.Clone(got[:n-1]), elided)
		}
		kept := slices.Clone(got)
		for i := range min(len(want), len(got)) {
			kept[i] = keptAs(want[i], got[i])
		}
		return kept
	case map[string]any:
		got, ok := answered.(map[string]any)
		if !ok {
			return answered
		}
		kept := map[string]any{}
		for name, v := range got {
			if w, ok := want[name]; ok {
				kept[name] = keptAs(w, v)
			} else if want[elided] != elided {
				kept[name] = v
			}
		}
		if want[elided] == elided {
			kept[elided] = elided
		}
		return kept
	}
	return answered
}

// TestErrorsOfTheAPI compares the table of errors with the code.
func TestErrorsOfTheAPI(t *testing.T) {
	documented := map[string][]string{}
	for _, r := range rows(t, document(t, "docs/api.md"), "reason", "RPC code", "HTTP", "exit code of ckptd") {
		documented[r[0]] = r[1:4]
	}
	reasons := map[string]bool{}
	for _, row := range wire.Table() {
		reason := strings.TrimPrefix(row.Reason.String(), "REASON_")
		reasons[reason] = true
		packed := wire.PackError(row.Err)
		code, _ := explain(wire.UnpackError(packed))
		want := []string{row.Code.String(), strconv.Itoa(httpStatus(t, packed)), strconv.Itoa(code)}
		if diff := cmp.Diff(want, documented[reason]); diff != "" {
			t.Errorf("%s: (-code +docs/api.md)\n%s", reason, diff)
		}
	}
	for reason := range documented {
		if !reasons[reason] {
			t.Errorf("docs/api.md has an error %s that does not exist", reason)
		}
	}
}

// httpStatus is the status that an error is answered with.
func httpStatus(t *testing.T, err error) int {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Content-Type", "application/json")
	if err := connect.NewErrorWriter().Write(w, r, err); err != nil {
		t.Fatal(err)
	}
	return w.Code
}

var permissions = map[string]access.Permission{"read": access.Read, "inspect": access.Inspect, "write": access.Write,
	"annotate": access.Annotate, "manage": access.Manage, "issue": access.Issue, "audit": access.Audit}

// TestRolesOfTheAPI compares the table of roles with the code.
func TestRolesOfTheAPI(t *testing.T) {
	documented := map[access.Role]access.Permission{}
	for _, r := range rows(t, document(t, "docs/api.md"), "role", "may") {
		for _, name := range strings.Split(r[1], ", ") {
			documented[access.Role(r[0])] |= permissions[name]
		}
	}
	want := map[access.Role]access.Permission{}
	for _, role := range access.Roles() {
		want[role] = role.Permissions()
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("roles: (-code +docs/api.md)\n%s", diff)
	}
}
