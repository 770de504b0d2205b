package redact

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/ckptd/ckptd/hook"
)

// Action is the treatment of a match.
type Action string

const (
	Mask   Action = "mask"   // [REDACTED:rule], the default
	Hash   Action = "hash"   // [rule:9f86d081884c7d65], the same for equal values of one user
	Drop   Action = "drop"   // remove the member or element that contains it
	Reject Action = "reject" // refuse the whole item
)

// Config selects rules and their actions. The zero Config means the built-in rules with the action
// mask. New reports unknown names as errors.
type Config struct {
	// Disable turns off rules by id or group. Enable turns some of them back on.
	Disable []string `toml:"disable" json:"disable,omitempty"`
	Enable  []string `toml:"enable" json:"enable,omitempty"`
	// Actions maps ids or groups to actions. An id takes precedence over its group; "all" means
	// every rule.
	Actions map[string]Action `toml:"actions" json:"actions,omitempty"`
	// Rules are custom rules. They need an id, keywords (every match begins with one) and a
	// pattern; the other fields are optional.
	Rules []Rule `toml:"rules" json:"rules,omitempty"`
	// Allow lists data to keep although a rule matches. Block lists data to redact although none
	// does.
	Allow Allow `toml:"allow" json:"allow,omitzero"`
	Block Block `toml:"block" json:"block,omitzero"`
}

// Allow lists data to keep. Paths are JSON pointers from the root of a value, in which * matches
// one name or index and ** any number of them. Keys are member names and ignore case. Paths and
// keys include everything below them.
type Allow struct {
	Values   []string `toml:"values" json:"values,omitempty"`     // exactly
	Patterns []string `toml:"patterns" json:"patterns,omitempty"` // RE2, must match the entire match of a rule
	Paths    []string `toml:"paths" json:"paths,omitempty"`
	Keys     []string `toml:"keys" json:"keys,omitempty"`
}

// Block lists members whose values are redacted whatever they are, except null. The action is that
// of the rule "blocked".
type Block struct {
	Paths  []string `toml:"paths" json:"paths,omitempty"`
	Keys   []string `toml:"keys" json:"keys,omitempty"`
	Action Action   `toml:"action" json:"action,omitempty"`
}

// ParseConfig parses a configuration in TOML, or in JSON if it begins with a brace. Errors are
// *hook.Error of the kind ErrInvalid and name the field.
func ParseConfig(text []byte) (c Config, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err = dec.Decode(&c); err == nil && dec.More() {
			err = errors.New("extra data after the object")
		}
	} else {
		err = toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&c)
	}
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(unknown.Errors) > 0 {
		row, _ := unknown.Errors[0].Position()
		return c, wrong("line %d: unknown field %s: correct it", row, strings.Join(unknown.Errors[0].Key(), "."))
	}
	if syntax, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, _ := syntax.Position()
		return c, wrong("line %d: %v: correct it", row, err)
	}
	if err != nil {
		return c, wrong("%v: correct it", err)
	}
	return c, nil
}

const blocked = "blocked" // the rule id of values listed in Block

// wrong returns a configuration error.
func wrong(format string, args ...any) error {
	return &hook.Error{Kind: hook.ErrInvalid, Plugin: name, Reason: fmt.Sprintf(format, args...)}
}

// digest returns the SHA-256 of the configuration as JSON, or zero for the zero Config.
func (c Config) digest() [32]byte {
	text, err := json.Marshal(c) // in field order, with sorted maps
	if err != nil || string(text) == "{}" {
		return [32]byte{}
	}
	return sha256.Sum256(text)
}

// compile returns the rules that a configuration selects, compiled.
func (c Config) compile(base []Rule, b *budget) ([]*rule, error) {
	if len(c.Rules) > maxRules {
		return nil, wrong("rules: %d rules: use at most %d", len(c.Rules), maxRules)
	}
	names := map[string]bool{"all": true, blocked: true}
	all := slices.Clone(base)
	for _, r := range base {
		names[r.ID], names[r.Group] = true, true
	}
	for i, r := range c.Rules {
		if !goodID(r.ID) {
			return nil, wrong("rules[%d].id %q: use lower-case letters, digits and dashes", i, r.ID)
		}
		if names[r.ID] {
			return nil, wrong("rules[%d].id %q is taken: choose another", i, r.ID)
		}
		if r.Group == "" {
			r.Group = "own"
		}
		names[r.ID], names[r.Group] = true, true
		all = append(all, r)
	}
	if err := c.check(names); err != nil {
		return nil, err
	}
	rules := make([]*rule, len(all))
	for i, r := range all {
		cost := 1
		if i >= len(base) {
			var err error
			if cost, err = b.take(r.Pattern); err == nil {
				_, err = b.take(r.Lead)
			}
			if err != nil {
				return nil, wrong("rule %s: pattern: %v", r.ID, err)
			}
		}
		compiled, err := compile(r, i)
		if err != nil {
			return nil, wrong("%v", err)
		}
		off := c.names(c.Disable, r) && !c.names(c.Enable, r)
		compiled.off, compiled.cost = off, cost
		compiled.action = c.actionOf(r)
		rules[i] = compiled
	}
	return rules, nil
}

// goodID reports whether a text is a letter followed by up to 47 letters, digits and dashes.
func goodID(id string) bool {
	if len(id) == 0 || len(id) > 48 || !isLower(id[0]) {
		return false
	}
	for i := range len(id) {
		if b := id[i]; !isLower(b) && !isDigit(b) && b != '-' {
			return false
		}
	}
	return true
}

func (c Config) check(names map[string]bool) error {
	lists := []struct {
		field string
		list  []string
	}{{"disable", c.Disable}, {"enable", c.Enable}}
	for _, l := range lists {
		for _, n := range l.list {
			if !names[n] {
				return wrong("%s: unknown rule or group %q: see ckptd redact --rules", l.field, n)
			}
		}
	}
	for n, a := range c.Actions {
		if !names[n] {
			return wrong("actions: unknown rule or group %q: see ckptd redact --rules", n)
		}
		if !a.valid() {
			return wrong("actions.%s %q: use mask, hash, drop or reject", n, a)
		}
	}
	for i, r := range c.Rules {
		if r.Action != "" && !r.Action.valid() {
			return wrong("rules[%d].action %q: use mask, hash, drop or reject", i, r.Action)
		}
	}
	if a := c.Block.Action; a != "" && !a.valid() {
		return wrong("block.action %q: use mask, hash, drop or reject", a)
	}
	return nil
}

func (a Action) valid() bool { return a == Mask || a == Hash || a == Drop || a == Reject }

// names reports whether a list names a rule.
func (c Config) names(list []string, r Rule) bool {
	return slices.Contains(list, "all") || slices.Contains(list, r.ID) || slices.Contains(list, r.Group)
}

func (c Config) actionOf(r Rule) Action {
	for _, key := range []string{r.ID, r.Group, "all"} {
		if a, ok := c.Actions[key]; ok {
			return a
		}
	}
	if r.Action != "" {
		return r.Action
	}
	return Mask
}

// allowed holds the values and patterns of an Allow.
type allowed struct {
	values   map[string]bool
	patterns []*regexp.Regexp
	cost     int // of all patterns, per byte
}

func newAllowed(a Allow, b *budget) (allowed, error) {
	out := allowed{values: map[string]bool{}}
	for _, v := range a.Values {
		out.values[v] = true
	}
	for i, p := range a.Patterns {
		cost, err := b.take(p)
		if err != nil {
			return out, wrong("allow.patterns[%d]: %v", i, err)
		}
		out.cost += cost
		re, err := regexp.Compile(`\A(?:` + p + `)\z`)
		if err != nil {
			return out, wrong("allow.patterns[%d]: %v: write it in RE2 syntax", i, err)
		}
		out.patterns = append(out.patterns, re)
	}
	return out, nil
}

func (a *allowed) has(value []byte) bool {
	if a.values[string(value)] {
		return true
	}
	for _, re := range a.patterns {
		if re.Match(value) {
			return true
		}
	}
	return false
}

// allows reports whether a match may stay.
func (s *scan) allows(value []byte) bool {
	return s.spend(len(value)*s.r.allowed.cost) && s.r.allowed.has(value)
}

// keySet builds a case-insensitive set of member names.
func keySet(keys []string) map[string]bool {
	set := map[string]bool{}
	for _, k := range keys {
		set[strings.ToLower(k)] = true
	}
	return set
}
