package pipeline

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/ckptd/ckptd/hook"
	"github.com/ckptd/ckptd/plugins/redact"
)

// Redactor is the built-in redactor with a configuration, along with variants that have a single
// group of rules. It is safe for concurrent use.
type Redactor struct {
	all    *redact.Redactor
	groups map[string]func() (*redact.Redactor, error) // created on first use
}

// NewRedactor creates the redactor for a configuration. Errors are *hook.Error of the kind
// ErrInvalid.
func NewRedactor(c redact.Config) (*Redactor, error) {
	all, err := redact.New(c)
	if err != nil {
		return nil, err
	}
	return newRedactor(all, c), nil
}

func newRedactor(all *redact.Redactor, c redact.Config) *Redactor {
	r := &Redactor{all, map[string]func() (*redact.Redactor, error){}}
	for _, group := range []string{"secrets", "personal"} {
		r.groups[group] = sync.OnceValues(func() (*redact.Redactor, error) {
			only := c
			only.Disable, only.Enable = []string{"all"}, nil
			for _, rule := range all.Rules() {
				if rule.Group == group {
					only.Enable = append(only.Enable, rule.ID)
				}
			}
			return redact.New(only)
		})
	}
	return r
}

// group returns the redactor for a set of rules; "" means all.
func (r *Redactor) group(set string) (*redact.Redactor, error) {
	if set == "" {
		return r.all, nil
	}
	if make := r.groups[set]; make != nil {
		return make()
	}
	return nil, &hook.Error{Kind: hook.ErrFailed,
		Reason: `it asked for an unknown rule set: want "", "secrets" or "personal"`}
}

// Identity names the rules and the configuration.
func (r *Redactor) Identity() hook.Identity {
	return hook.Identity{Name: redactName, Digest: r.all.Digest(), Config: r.all.ConfigDigest()}
}

// Rules lists the active rules.
func (r *Redactor) Rules() []redact.Rule { return r.all.Rules() }

// redactItem redacts an item in place.
func (r *Redactor) redactItem(ctx context.Context, it *hook.Item, key [32]byte) ([]hook.Finding, error) {
	if it.Kind == hook.Label {
		return r.redactLabel(ctx, it, key)
	}
	out, err := r.all.Redact(ctx, redact.Input{Type: it.Type, Name: nameOf(it), Data: it.Data, Prev: it.Prev, PseudonymKey: key})
	if err != nil {
		return nil, err
	}
	if it.Data, it.Dropped = out.Data, out.Dropped; it.Data == nil && !it.Dropped {
		it.Data = []byte{}
	}
	return out.Findings, nil
}

// redactLabel redacts the key and value of a label like a member of an object, because the key
// tells the kind of value.
func (r *Redactor) redactLabel(ctx context.Context, it *hook.Item, key [32]byte) ([]hook.Finding, error) {
	if !utf8.ValidString(it.Name) || !utf8.Valid(it.Data) {
		return nil, &hook.Error{Kind: hook.ErrRejected, Plugin: redactName, Item: nameOf(it), Reason: "a label is not UTF-8"}
	}
	object, err := json.Marshal(map[string]string{it.Name: string(it.Data)})
	if err != nil {
		return nil, err
	}
	out, err := r.all.Redact(ctx, redact.Input{Type: "json", Name: nameOf(it), Data: object, PseudonymKey: key})
	if err != nil || !out.Changed {
		return out.Findings, err
	}
	var label map[string]any
	if err := json.Unmarshal(out.Data, &label); err != nil && !out.Dropped {
		return nil, &hook.Error{Kind: hook.ErrFailed, Plugin: redactName, Item: nameOf(it), Reason: "the output for one label is not exactly one label"}
	}
	it.Dropped = true // unless something remains
	for name, value := range label {
		if text, ok := value.(string); ok {
			it.Name, it.Data, it.Dropped = name, []byte(text), false
		}
	}
	return out.Findings, nil
}

// redactBytes redacts data from a plugin, using one of the sets of rules.
func (r *Redactor) redactBytes(ctx context.Context, set, name string, data []byte, key [32]byte) ([]byte, []hook.Finding, error) {
	rules, err := r.group(set)
	if err != nil {
		return nil, nil, err
	}
	out, err := rules.Redact(ctx, redact.Input{Name: name, Data: data, PseudonymKey: key})
	if err != nil {
		return nil, nil, err
	}
	if out.Dropped {
		return []byte{}, out.Findings, nil
	}
	return out.Data, out.Findings, nil
}

// countByRule adds up findings by rule.
func countByRule(findings []hook.Finding) map[string]int {
	if len(findings) == 0 {
		return nil
	}
	counts := map[string]int{}
	for _, f := range findings {
		counts[f.Rule] += f.Count
	}
	return counts
}

// nameOf returns the kind and name of an item for errors and findings. The names of labels and
// memory items are user data and are left out.
func nameOf(it *hook.Item) string {
	if it.Name == "" || !slices.Contains([]hook.Kind{hook.Channel, hook.Write}, it.Kind) {
		return it.Kind.String()
	}
	return it.Kind.String() + " " + it.Name
}
