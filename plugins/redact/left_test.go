package redact

import (
	"math/big"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Text that redaction must leave alone: everything that no rule matched.

// justified checks each replacement in a text. One pass over the text finds it, or it is next to a
// mask, and one pass finds it with the earlier marks in place. If its kind has a recognizable form,
// it must have that form.
func justified(t *testing.T, r *Redactor, text string) (hits int) {
	t.Helper()
	out := redacted(t, r, Input{Type: "text", Data: []byte(text)})
	s := newScan(r)
	edits, _ := s.settle([]byte(text), nil)
	if string(apply([]byte(text), edits)) != string(out.Data) {
		t.Fatalf("%q became %q, which is not what the edits make of it", text, out.Data)
	}
	known := make([]bool, len(text)) // bytes allowed to go
	lookAt(s, text, known)
	for _, e := range edits {
		value := text[e.start:e.end]
		rule, masked := strings.CutPrefix(string(e.text), "[REDACTED:")
		if !masked { // base64
			continue
		}
		if has := formOf[rule[:len(rule)-1]]; has != nil && !holds(value, has) {
			t.Errorf("%q: %q is no %s", text, value, rule)
		}
		for looks := 0; slices.Contains(known[e.start:e.end], false); looks++ {
			near := known[max(0, e.start-unlessReach):min(len(text), e.end+unlessReach)]
			if looks > maxRounds || !slices.Contains(near, true) && !strings.Contains(text, "[REDACTED:") {
				t.Errorf("%q became %q: no rule matches %q, with masks or without", text, out.Data, value)
				break
			}
			lookAt(s, text, known)
		}
	}
	return len(edits)
}

// lookAt adds to the known bytes those that are part of a match once marks are in place.
func lookAt(s *scan, text string, known []bool) {
	var left []byte
	var from []int // position in text of each byte of left, -1 within a mark
	for i := 0; i < len(text); i++ {
		if !known[i] {
			left, from = append(left, text[i]), append(from, i)
			continue
		}
		if i == 0 || !known[i-1] {
			mask := "[REDACTED:masked]"
			left, from = append(left, mask...), append(from, slices.Repeat([]int{-1}, len(mask))...)
		}
	}
	for _, m := range s.text(left, nil) {
		for _, i := range from[m.start:m.end] {
			if i >= 0 {
				known[i] = true
			}
		}
	}
}

// holds reports whether a value, or part of it, has a form: overlapping matches become one.
func holds(value string, has func(string) bool) bool {
	for start := range len(value) {
		for end := len(value); end > start; end-- {
			if has(value[start:end]) {
				return true
			}
		}
	}
	return false
}

// formOf recognizes the form of a kind without using the rules.
var formOf = map[string]func(v string) bool{
	"email": func(v string) bool { return strings.Contains(v, "@") || strings.Contains(v, "%40") },
	"phone": func(v string) bool { return countDigits(v) >= 6 && countDigits(v) <= 23 },
	"ipv4":  func(v string) bool { a, err := netip.ParseAddr(v); return err == nil && a.Is4() },
	"ipv6":  func(v string) bool { a, err := netip.ParseAddr(v); return err == nil && a.Is6() },
	"mac":   func(v string) bool { _, err := net.ParseMAC(v); return err == nil },
	"card":  func(v string) bool { return countDigits(v) >= 12 && countDigits(v) <= 19 && sumOfLuhn(v)%10 == 0 },
	"iban": func(v string) bool {
		digits := ""
		if len(v) < 15 || strings.Trim(v, alnum+" -") != "" {
			return false
		}
		v = strings.ToUpper(strings.NewReplacer(" ", "", "-", "").Replace(v))
		for _, c := range v[4:] + v[:4] {
			n, _ := strconv.ParseInt(string(c), 36, 0)
			digits += strconv.Itoa(int(n))
		}
		n, ok := new(big.Int).SetString(digits, 10)
		return ok && n.Mod(n, big.NewInt(97)).Int64() == 1
	},
	"us-ssn": func(v string) bool { return countDigits(v) == 9 },
}

func countDigits(v string) (n int) {
	for _, c := range v {
		if c >= '0' && c <= '9' {
			n++
		}
	}
	return n
}

func sumOfLuhn(v string) (sum int) {
	place := 0
	for i := len(v) - 1; i >= 0; i-- {
		if v[i] < '0' || v[i] > '9' {
			continue
		}
		d := int(v[i]-'0') << (place % 2)
		sum += d/10 + d%10
		place++
	}
	return sum
}

// proses, logs, sources and scripts are lines of agents and programs. {d} is a number, {w} a word,
// {h} hexadecimal digits, and {v} a value to be found.
var lines = []string{
	"Please call me back about case {d}, {d} and {d}, or reach me at {v}.", "I found {v} in the ticket, and the order {d} is in the ring.",
	"Your confirmation number is {d}. The total is ${d}.{d}, contact {w} for {v} and {d}.", "phone {v}, cases {d}, {d}, {d}, {d}, {d}, {d}",
	"2024-05-2{d} 10:00:00.{d} INFO {w}[{d}]: call {w} took {d} ms, peer {v}", `{"level":"info","ts":{d},"msg":"{w}","pid":{d},"user":"{v}"}`,
	"[{d}.{d}] {w}: ring 0x{h} reached {d} of {d}, cell {d}-{d}", "{d} {d} {d} {d} {d} {d} {d} {d} {d}", "{d}.{d}.{d} {d}/{d} {d}-{d}-{d} +{d} ({d}) {d}",
	"const {w} = []int{{d}, {d}, 0x{h}, {d}e{d}} // {v}", "if {w} > {d} && {w}.password != \"{v}\" { return {w}[{d}:{d}] }", "{w}_token = os.environ['{w}'] or \"{v}\"",
	"!function(e,t){var n={d},r=\"{w}\",o={{w}:{d},{w}:.{d}};e.{w}=t({d},{d}e{d},\"{v}\")}({d},{d});", "a{d}=b[{d}]<<{d}|c>>>{d};d.{w}?{d}:-{d};f=\"{h}\";g=/{w}{d}/g",
	"export API_TOKEN={v} PORT={d} # {w}", "password={v}{d} and [REDACTED:email]{d} or {w}@{w}.org", "tel {d} {v} [REDACTED:phone] {d} {d} {d}", "{v}{v} {v},{v};{d}-{v}-{d}",
}

func randomLine(rng *rand.Rand) string {
	line := lines[rng.IntN(len(lines))]
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(line, "{")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		switch {
		case strings.HasPrefix(rest, "d}"):
			b.WriteString(pick(rng, 1+rng.IntN(11), numbers))
		case strings.HasPrefix(rest, "w}"):
			b.WriteString(pick(rng, 1+rng.IntN(9), lowers))
		case strings.HasPrefix(rest, "h}"):
			b.WriteString(pick(rng, 2<<rng.IntN(5), hexes))
		case strings.HasPrefix(rest, "v}"):
			if rng.IntN(3) == 0 {
				b.WriteString(fragments[rng.IntN(len(fragments))])
			} else {
				b.WriteString(planted[rng.IntN(len(planted))].make(rng))
			}
		default:
			b.WriteString("{")
			line = rest
			continue
		}
		line = rest[2:]
	}
}

// A text of a few kilobytes of one kind, or an excerpt of one.
func randomOutput(rng *rand.Rand) string {
	var b strings.Builder
	if rng.IntN(4) == 0 {
		names := []string{"ls", "xxd", "hexdump", "od", "ps", "proc", "maps", "git", "certificate", "csv"}
		outputs[names[rng.IntN(len(names))]](rng, &b)
	} else {
		for range 1 + rng.IntN(12) {
			b.WriteString(randomLine(rng) + []string{"\n", " ", "\t", ""}[rng.IntN(4)])
		}
	}
	text := b.String()
	start := rng.IntN(len(text))
	if len(text) > 1500 || rng.IntN(3) == 0 {
		text = text[start:min(len(text), start+1+rng.IntN(1500))]
	}
	return text
}

// Nothing is replaced except matches of a rule and remainders next to a mark.
func TestOnlyMatchesGo(t *testing.T) {
	texts := 3000
	if long, err := strconv.Atoi(os.Getenv("CKPTD_LONG")); err == nil {
		texts = max(texts, long/10)
	}
	r := Default()
	hits := 0
	for i := range texts {
		text := randomOutput(rand.New(rand.NewPCG(12, uint64(i))))
		hits += justified(t, r, text)
		if t.Failed() {
			t.Fatalf("text %d", i)
		}
	}
	t.Logf("%d texts, %d hits", texts, hits)
}

// Text that only resembles a match stays, whatever was found next to it.
func TestSimilarTextStays(t *testing.T) {
	r := Default()
	cases := "The customer called, phone 415-555-0132. Open cases: "
	rng := rand.New(rand.NewPCG(1, 9))
	for range 40 {
		cases += pick(rng, 5, "123456789") + "-" + pick(rng, 5, numbers) + ", "
	}
	for _, c := range []struct{ name, text, want string }{
		{"case numbers behind a telephone number", cases, strings.Replace(cases, "415-555-0132", "[REDACTED:phone]", 1)},
		{"a directory", "-rw-r--r--   1 root root      0 2025-06-24 14:39:40.000000000 +0000 icons\n" +
			"drwxr-xr-x   2 root root   4096 2025-06-24 14:39:40.000000000 +0000 image\n" +
			"drwxr-xr-x   2 root root   4096 2025-06-24 14:39:39.000000000 +0000 inode\n" +
			"-rw-r--r--   1 root root  30667 2025-06-24 14:39:40.000000000 +0000 magic\n" +
			"drwxr-xr-x   2 root root   4096 2025-06-24 14:39:40.000000000 +0000 message", ""},
		{"a dump", "00000ec0: 6103 0000 1200 0f00 e04a 0100 0000 0000  a........J......\n000019e0: 5833 0200 0000 0000 0800 0000 0000 0000  X3..............", ""},
		{"words in a mask", "[REDACTED:phone], 4155550132 and [REDACTED:us-bank-account]: 12345678", ""},
		{"words before a mask", "phone [REDACTED:email] 4155550132", ""},
		{"words that mean other things", "the ring_buffer of contact.go, reach_max=4155550132, a portable way to write 4155550132", ""},
		{"figures", "pid 12345-67890, 0.0301234567, 1/2345678, 10:00:00.123456789, 7fe3df73e000-7fe3df741000 rw-p 00000000 00:00 0, Cached: 13487420220 kB", ""},
		{"a key is not made of masks", "-----BEGIN RSA PRIVATE KEY----- 10.90.48.249,+1 415-555-8974;881",
			"-----BEGIN RSA PRIVATE KEY----- [REDACTED:ipv4],[REDACTED:phone];881"},
	} {
		if c.want == "" {
			c.want = c.text
		}
		if out := redacted(t, r, Input{Type: "text", Data: []byte(c.text)}); string(out.Data) != c.want {
			t.Errorf("%s: %q became %q", c.name, c.text, out.Data)
		}
	}
}

// A match of the last pass over a text is reported and stays, and the earlier passes still count.
func TestLastLook(t *testing.T) {
	chain := Rule{ID: "chain", Keywords: []string{".a"}, Pattern: `\.a`} // only if no word precedes it
	r, err := New(Config{Rules: []Rule{chain}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Redact(t.Context(), Input{Type: "text", Data: []byte(strings.Repeat(".a", 9))})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("[REDACTED:chain]", maxRounds) + strings.Repeat(".a", 9-maxRounds); string(out.Data) != want || len(out.Findings) != 1 || out.Findings[0].Count != maxRounds+1 {
		t.Errorf("%s, %v", out.Data, out.Findings)
	}
}
