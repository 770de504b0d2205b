package contract

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	ckptdv1 "github.com/ckptd/ckptd/api/ckptd/v1"
)

var update = flag.Bool("update", false, "write the tables of docs/api.md anew")

const document = "../../docs/api.md"

// TestTablesOfTheAPI compares what docs/api.md says of the methods with the contract.
func TestTablesOfTheAPI(t *testing.T) {
	have, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	want, err := fillIn(string(have), API, Services())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(have) {
		t.Error("the tables of docs/api.md are not those of the .proto files: make generate")
	}
}

// fillIn writes the tables into a document: one for the methods of each service, and the reasons
// that all may answer.
func fillIn(text string, t *Table, services []protoreflect.ServiceDescriptor) (string, error) {
	text, err := between(text, "reasons", commonReasons())
	for _, service := range services {
		if err == nil {
			text, err = between(text, string(service.Name()), methodTable(t, service))
		}
	}
	return text, err
}

// between puts a text between the comments that have a name.
func between(text, name, what string) (string, error) {
	begin, end := fmt.Sprintf("<!-- %s: from the .proto files, by make generate -->\n", name), "<!-- end -->\n"
	before, rest, ok := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return text, fmt.Errorf("docs/api.md has no place for %s: add a section with the lines\n%s%s", name, begin, end)
	}
	return before + begin + what + end + after, nil
}

func methodTable(t *Table, service protoreflect.ServiceDescriptor) string {
	var b strings.Builder
	b.WriteString("| method | needs | on | if the answer was lost | audit log | counts as | may answer |\n|---|---|---|---|---|---|---|\n")
	for i := range service.Methods().Len() {
		b.WriteString(row(t.Asked(newMessage(service.Methods().Get(i).Input()))) + "\n")
	}
	return b.String()
}

// row is the row of a method.
func row(m *Method) string {
	counts := "request"
	if m.GetEndless() {
		counts = "watch"
	}
	return "| " + strings.Join([]string{m.Name, needsOf(m), scopeOf(m), retryOf(m), auditOf(m), counts, reasonsOf(m.GetReasons())}, " | ") + " |"
}

func needsOf(m *Method) string {
	if m.GetWithoutContent() == 0 {
		return nameOf(m.GetNeeds())
	}
	return fmt.Sprintf("%s %s, else %s", nameOf(m.GetNeeds()), m.content, nameOf(m.GetWithoutContent()))
}

func nameOf(p ckptdv1.Permission) string {
	if p == 0 {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(p.String(), "PERMISSION_"))
}

func scopeOf(m *Method) string {
	on := map[ckptdv1.Scope]string{
		ckptdv1.Scope_SCOPE_NOTHING: "", ckptdv1.Scope_SCOPE_THREAD: "the thread", ckptdv1.Scope_SCOPE_THREADS: "threads",
		ckptdv1.Scope_SCOPE_USER: "the user", ckptdv1.Scope_SCOPE_TENANT: "the tenant", ckptdv1.Scope_SCOPE_STORE: "the store",
		ckptdv1.Scope_SCOPE_NAMED: "the named object", ckptdv1.Scope_SCOPE_GRANTS: "the granted scope"}[m.GetOn()]
	if m.GetEach() {
		on += " of each of its requests"
	}
	if m.also != nil {
		on += fmt.Sprintf(" and the one in `%s`", m.also.JSONName())
	}
	if len(m.wholeTenant) > 0 {
		on += fmt.Sprintf("; of all users %s", m.wholeTenant)
	}
	if len(m.anyUser) > 0 {
		on += fmt.Sprintf("; of any user %s", m.anyUser)
	}
	return on
}

func retryOf(m *Method) string {
	switch m.GetRetry() {
	case ckptdv1.Retry_RETRY_READ:
		return "repeat: it reads"
	case ckptdv1.Retry_RETRY_REPEAT:
		return "repeat: twice is once"
	case ckptdv1.Retry_RETRY_SAME_ID:
		return fmt.Sprintf("repeat with `%s`", m.id)
	}
	return "look first"
}

func auditOf(m *Method) string {
	switch {
	case m.GetAudited():
		return "every call"
	case len(m.exports) > 0:
		return fmt.Sprintf("denials; exports: %s", m.exports)
	}
	return "denials"
}

func reasonsOf(reasons []ckptdv1.Reason) string {
	var names []string
	for _, r := range reasons {
		names = append(names, strings.TrimPrefix(r.String(), "REASON_"))
	}
	return strings.Join(names, ", ")
}

// commonReasons are those that a method answers without naming them.
func commonReasons() string {
	by := map[ckptdv1.AnsweredBy][]ckptdv1.Reason{}
	values := ckptdv1.Reason(0).Descriptor().Values()
	for i := range values.Len() {
		a, _ := proto.GetExtension(values.Get(i).Options(), ckptdv1.E_AnsweredBy).(ckptdv1.AnsweredBy)
		by[a] = append(by[a], ckptdv1.Reason(values.Get(i).Number()))
	}
	return fmt.Sprintf("Every method may answer %s.\nEvery method that changes something may answer %s.\n",
		reasonsOf(by[ckptdv1.AnsweredBy_ANSWERED_BY_ALL]), reasonsOf(by[ckptdv1.AnsweredBy_ANSWERED_BY_CHANGES]))
}

// String tells conditions to people.
func (cs conditions) String() string {
	var any []string
	for _, c := range cs {
		var all []string
		for _, field := range c.set {
			all = append(all, fmt.Sprintf("with `%s`", field.JSONName()))
		}
		for _, field := range c.unset {
			all = append(all, fmt.Sprintf("without `%s`", field.JSONName()))
		}
		any = append(any, strings.Join(all, " and "))
	}
	return strings.Join(any, " or ")
}

func (p path) String() string {
	var names []string
	for _, field := range p {
		names = append(names, field.JSONName())
	}
	return strings.Join(names, ".")
}
