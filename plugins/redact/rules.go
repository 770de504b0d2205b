package redact

import (
	"bytes"
	_ "embed"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

//go:embed rules.toml
var builtin []byte

// A Rule defines something to find. The built-in ones are in rules.toml, which also explains the
// fields. A configuration can add its own, made of keywords and a pattern.
type Rule struct {
	ID       string   `toml:"id" json:"id"`
	Group    string   `toml:"group" json:"group,omitempty"` // "secrets" or "personal", "own" in a configuration
	About    string   `toml:"about" json:"about,omitempty"`
	Keywords []string `toml:"keywords" json:"keywords,omitempty"`
	Before   int      `toml:"before" json:"before,omitempty"`
	Lead     string   `toml:"lead" json:"lead,omitempty"`
	Pattern  string   `toml:"pattern" json:"pattern,omitempty"`
	Scanner  string   `toml:"scanner" json:"scanner,omitempty"`
	Shapes   []string `toml:"shapes" json:"shapes,omitempty"`
	Weak     []string `toml:"weak" json:"weak,omitempty"`
	Entropy  float64  `toml:"entropy" json:"entropy,omitempty"`
	Like     string   `toml:"like" json:"like,omitempty"`
	Check    string   `toml:"check" json:"check,omitempty"`
	Context  []string `toml:"context" json:"context,omitempty"`
	Close    []string `toml:"close" json:"close,omitempty"`
	Unless   []string `toml:"unless" json:"unless,omitempty"`
	Action   Action   `toml:"action" json:"action,omitempty"`
}

// rule is a compiled Rule.
type rule struct {
	Rule
	rank    int // if several rules match, the lowest rank names the match
	action  Action
	pattern *regexp.Regexp
	first   firstBytes
	lead    firstBytes
	shapes  []shape
	check   func(value []byte) bool
	off     bool
	cost    int // per byte that the pattern examines
}

// scannerKind selects the code that runs at a keyword of a rule. Kinds without a named scanner
// follow from a rule's fields.
type scannerKind uint8

const (
	byPattern  scannerKind = iota + 1
	byAssigned             // a value assigned to a name that contains the keyword
	byHeader               // PEM and similar: from one line of dashes to another
	byURL                  // credentials in the authority of a URL
	byEmail
	byDigits // groups of digits
	byWord   // a word of letters and digits
	byIBAN
	byColons // IPv6 and MAC addresses
	byContext
	byClose
	byUnless
)

// scanners lists the named scanners and the words that trigger each.
var scanners = map[string]struct {
	kind  scannerKind
	words []string
}{
	"":         {byPattern, nil},
	"assigned": {byAssigned, nil},
	"pem":      {byHeader, []string{"-----BEGIN", "---- BEGIN"}},
	"url":      {byURL, []string{"://"}},
	"email":    {byEmail, []string{"@", "%4"}},
	"digits":   {byDigits, nil},
	"phone":    {byDigits, nil},
	"card":     {byDigits, nil},
	"ipv4":     {byDigits, nil},
	"word":     {byWord, nil},
	"iban":     {byIBAN, nil},
	"ipv6":     {byColons, []string{":"}},
	"mac":      {byColons, []string{":", "-"}},
}

// trigger is an action to take at a word.
type trigger struct {
	kind scannerKind
	rule *rule
	size int // of the word
	// exact is the word itself, where the automaton confuses it with others: in other scripts.
	exact string
}

// loadRules reads the built-in rules.
func loadRules() ([]Rule, error) {
	var file struct {
		Rule []Rule `toml:"rule"`
	}
	if err := toml.Unmarshal(builtin, &file); err != nil {
		return nil, fmt.Errorf("reading the built-in rules: %w", err)
	}
	return file.Rule, nil
}

// compile compiles a rule.
func compile(r Rule, rank int) (*rule, error) {
	c := &rule{Rule: r, rank: rank, action: r.Action}
	scanner, ok := scanners[r.Scanner]
	if !ok {
		return nil, fmt.Errorf("rule %s: unknown scanner %q: remove it to use the pattern", r.ID, r.Scanner)
	}
	if r.Pattern == "" && scanner.kind == byPattern {
		return nil, fmt.Errorf("rule %s: pattern is empty: give one in RE2 syntax", r.ID)
	}
	if needs := scanner.kind == byPattern || scanner.kind == byAssigned; needs && len(r.Keywords) == 0 {
		return nil, fmt.Errorf("rule %s: keywords is empty: list the beginnings of all matches", r.ID)
	}
	for _, w := range slices.Concat(r.Keywords, r.Context, r.Close, r.Unless) {
		if w == "" {
			return nil, fmt.Errorf("rule %s: a keyword is empty: remove it", r.ID)
		}
	}
	if r.Pattern != "" {
		end := `)`
		if scanner.kind == byAssigned || scanner.kind == byWord {
			end = `)\z`
		}
		re, err := regexp.Compile(`\A(?:` + r.Pattern + end)
		if err != nil {
			return nil, fmt.Errorf("rule %s: pattern: %w: write it in RE2 syntax", r.ID, err)
		}
		if re.MatchString("") {
			return nil, fmt.Errorf("rule %s: pattern matches the empty string: make it require a character", r.ID)
		}
		c.pattern, c.first = re, firstBytesOf(r.Pattern)
	}
	if r.Pattern == "" && scanner.kind == byAssigned && r.Like != "password" && r.Like != "token" && r.Like != "key" {
		return nil, fmt.Errorf("rule %s: like %q: use password, token or key, or give a pattern", r.ID, r.Like)
	}
	if r.Lead != "" {
		if _, err := regexp.Compile(r.Lead); err != nil {
			return nil, fmt.Errorf("rule %s: lead: %w: write a class such as [0-9a-f]", r.ID, err)
		}
		c.lead = firstBytesOf(r.Lead)
	}
	if r.Check != "" {
		if c.check = checks[r.Check]; c.check == nil {
			return nil, fmt.Errorf("rule %s: unknown check %q", r.ID, r.Check)
		}
	}
	for _, list := range []struct {
		shapes []string
		weak   bool
	}{{r.Shapes, false}, {r.Weak, true}} {
		for _, text := range list.shapes {
			s, err := parseShape(text)
			if err != nil {
				return nil, fmt.Errorf("rule %s: %w", r.ID, err)
			}
			s.weak = list.weak
			c.shapes = append(c.shapes, s)
		}
	}
	return c, nil
}

// triggers returns the distinct words to find and the actions at each.
func triggers(rules []*rule) (words []string, acts [][]trigger) {
	index := map[string]int{}
	add := func(word string, t trigger) {
		word = strings.ToLower(word)
		for n := len(word); n > 1 && isDigit(word[n-1]) && isDigit(word[n-2]); n-- {
			word = word[:n-1] // of consecutive digits the automaton reports only the first
		}
		folded := []byte(word)
		for i, b := range folded {
			folded[i] = fold(b)
		}
		i, ok := index[string(folded)]
		if !ok {
			i = len(words)
			index[string(folded)] = i
			words, acts = append(words, string(folded)), append(acts, nil)
		}
		t.size = len(word)
		if bytes.ContainsFunc([]byte(word), func(r rune) bool { return r >= 0x80 }) {
			t.exact = word
		}
		if !slices.Contains(acts[i], t) {
			acts[i] = append(acts[i], t)
		}
	}
	add(string(rune(digitByte)), trigger{kind: byDigits})
	for _, r := range rules {
		if r.off {
			continue
		}
		s := scanners[r.Scanner]
		for _, w := range s.words {
			add(w, trigger{kind: s.kind})
		}
		if s.kind == byPattern || s.kind == byAssigned {
			for _, w := range r.Keywords {
				add(w, trigger{kind: s.kind, rule: r})
			}
		}
		for _, w := range r.Context {
			add(w, trigger{kind: byContext, rule: r})
		}
		for _, w := range r.Close {
			add(w, trigger{kind: byClose, rule: r})
		}
		for _, w := range r.Unless {
			add(w, trigger{kind: byUnless, rule: r})
		}
	}
	return words, acts
}

// firstBytes describes all matches of a pattern: at least n bytes, all from the set.
type firstBytes struct {
	n   int
	set [256]bool
}

// fits reports whether a match can begin at the start of text.
func (f *firstBytes) fits(text []byte) bool {
	if len(text) < f.n {
		return false
	}
	for _, b := range text[:f.n] {
		if !f.set[b] {
			return false
		}
	}
	return true
}

// run returns the number of bytes at the start of text that are in the set. No match extends
// further.
func (f *firstBytes) run(text []byte) int {
	text = text[:min(len(text), maxPattern)]
	for i, b := range text {
		if !f.set[b] {
			return i
		}
	}
	return len(text)
}

func firstBytesOf(pattern string) (f firstBytes) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return f
	}
	f.n = f.add(re)
	return f
}

// add adds all bytes that re can match and returns their minimum number.
func (f *firstBytes) add(re *syntax.Regexp) int {
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			f.addRange(r, r)
			if re.Flags&syntax.FoldCase != 0 {
				f.addRange([]rune(strings.ToUpper(string(r)))[0], []rune(strings.ToUpper(string(r)))[0])
				f.addRange([]rune(strings.ToLower(string(r)))[0], []rune(strings.ToLower(string(r)))[0])
			}
		}
		return len(re.Rune)
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			f.addRange(re.Rune[i], re.Rune[i+1])
		}
		return 1
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		f.addRange(0, 0x80) // all
		return 1
	case syntax.OpConcat, syntax.OpCapture:
		n := 0
		for _, sub := range re.Sub {
			n += f.add(sub)
		}
		return n
	case syntax.OpAlternate:
		least := -1
		for _, sub := range re.Sub {
			if n := f.add(sub); least < 0 || n < least {
				least = n
			}
		}
		return max(least, 0)
	case syntax.OpStar, syntax.OpQuest:
		f.add(re.Sub[0])
	case syntax.OpPlus:
		return f.add(re.Sub[0])
	case syntax.OpRepeat:
		return f.add(re.Sub[0]) * re.Min
	}
	return 0
}

func (f *firstBytes) addRange(from, to rune) {
	for r := from; r <= min(to, 0x7f); r++ {
		f.set[r] = true
	}
	if to >= 0x80 {
		for b := 0x80; b < 0x100; b++ {
			f.set[b] = true
		}
	}
}
