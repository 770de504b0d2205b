package redact

import (
	"bytes"
	"fmt"
	"strings"
)

// number is a sequence of digit groups with one to three characters between them, such as +1 (415)
// 555-0123.
type number struct {
	start, end int // in the text; includes a preceding plus sign or opening parenthesis
	plus       bool
	groups     [maxGroups]group
	n          int
	stands     row
}

// group is a group of digits and the separator before it.
type group struct {
	start, end int
	sep        byte // '-', '.', ' ', '/', '(' or ')', 0 before the first
}

const (
	maxGroups    = 12
	maxDigits    = 24 // examined in a single number
	minimumDigit = 3
)

func (g group) size() int { return g.end - g.start }

// digits examines the digits that begin at text[start] and marks them as seen.
func (s *scan) digits(text []byte, start int) {
	if end := afterColour(text, start); end > start {
		s.until = end
		return
	}
	if start > 0 && isLetter(text[start-1]) && !escapeEnds(text, start) {
		s.word(text, start)
		return
	}
	var n number
	readNumber(&n, text, start)
	s.until = n.end
	if n.end < len(text) && isWord(text[n.end]) {
		last := n.groups[n.n-1]
		if !s.word(text, last.start) && text[n.end] != 'x' {
			n.n-- // the last group is the start of a word
		}
	}
	if n.n == 0 || n.end-n.start < 7 {
		return
	}
	for g := 0; g < n.n; {
		if skip := dateAt(text, &n, g); skip > 0 {
			g += skip
			continue
		}
		if to := s.numberAt(text, &n, g); to > g {
			g = to
			continue
		}
		g++
	}
}

// numberAt tries every digit rule on the groups from g on. It returns the group after the match, or
// g.
func (s *scan) numberAt(text []byte, n *number, g int) int {
	if g > 0 && tight(n.groups[g].sep) || g == 0 && glued(text, n.start) {
		return g
	}
	for _, r := range s.r.digits {
		to := g
		switch r.Scanner {
		case "card":
			to = s.card(text, n, g, r)
		case "ipv4":
			to = s.ipv4(text, n, g, r)
		case "phone":
			to = s.phone(text, n, g, r)
		default:
			to = s.shaped(text, n, g, r)
		}
		if to > g {
			return to
		}
	}
	return g
}

// tight reports whether a separator joins both sides into one name or number.
func tight(sep byte) bool { return sep == '-' || sep == '.' || sep == '/' }

// glued reports whether text[i] continues a longer name or number.
func glued(text []byte, i int) bool {
	if i == 0 {
		return false
	}
	switch b := text[i-1]; {
	case isWord(b):
		return !escapeEnds(text, i)
	case b == '-':
		return true // a minus, or a name
	case b == '.', b == '/':
		return i > 1 && isWord(text[i-2])
	case b == '#', b == '$', b == '\\':
		return true
	case b >= 0x80: // € and £ before an amount
		return bytes.HasSuffix(text[:i], []byte("€")) || bytes.HasSuffix(text[:i], []byte("£"))
	}
	return false
}

// bounded reports whether the end of the group before to is a plausible end of a number.
func bounded(text []byte, n *number, to int) bool {
	if to < n.n {
		return !tight(n.groups[to].sep)
	}
	end := n.groups[to-1].end
	if end >= len(text) {
		return true
	}
	switch b := text[end]; {
	case isWord(b):
		return false
	case b == '-', b == '/':
		return end+1 >= len(text) || !isWord(text[end+1])
	case b == ',' && (n.plus || n.groups[to-1].sep == '-'): // not an amount but a table column
		return true
	case b == '.' && end+2 < len(text) && text[end+1] == '.': // a range, unless it is an ellipsis
		return !isWord(text[end+2])
	case b == '.', b == ',':
		return end+1 >= len(text) || !isDigit(text[end+1])
	case b == '%':
		return false
	}
	return true
}

// readNumber reads the number whose first digit is text[start].
func readNumber(n *number, text []byte, start int) {
	n.start = start
	at := start
	var sep byte
	if at > 0 && text[at-1] == '(' {
		n.start, sep = at-1, '('
		if at > 1 && text[at-2] == '+' {
			n.start, n.plus = at-2, true
		}
	} else if at > 0 && text[at-1] == '+' {
		n.start, n.plus = at-1, true
	}
	digits := 0
	for n.n < maxGroups {
		g := group{start: at, sep: sep}
		for at < len(text) && isDigit(text[at]) {
			at++
		}
		g.end = at
		n.groups[n.n] = g
		n.n++
		digits += g.size()
		var next int
		if sep, next = separator(text, at); sep == 0 || digits > 2*maxDigits {
			break
		}
		at = next
	}
	n.end = n.groups[n.n-1].end
	if first := &n.groups[0]; first.sep == '(' && (n.n == 1 || n.groups[1].sep != ')') { // it encloses the whole number
		first.sep = 0
		if !n.plus {
			n.start = first.start
		}
	}
}

// separator reads a separator of digit groups at text[at] and returns it with the start of the next
// group; 0 if there is none.
func separator(text []byte, at int) (sep byte, next int) {
	for i := 0; i < 3 && at < len(text); i++ {
		b := text[at]
		size := 1
		switch {
		case isDigit(b):
			return sep, at
		case b == ' ' || b == '-' || b == '.' || b == '/' || b == '(' || b == ')':
		case b == 0xC2 && at+1 < len(text) && text[at+1] == 0xA0: // no-break space
			b, size = ' ', 2
		case b == 0xE2 && at+2 < len(text) && text[at+1] == 0x80 && (text[at+2] >= 0x90 && text[at+2] <= 0x94): // dashes
			b, size = '-', 3
		case b == 0xE2 && at+2 < len(text) && text[at+1] == 0x80 && text[at+2] == 0xAF: // narrow space
			b, size = ' ', 3
		default:
			return 0, at
		}
		if b == '-' && sep == ' ' && at+1 < len(text) && isDigit(text[at+1]) {
			return 0, at // a minus
		}
		if b == ' ' && i > 0 && (text[at-1] == ' ' || text[at-1] >= 0x80) {
			return 0, at // table columns
		}
		if b != ' ' || sep == 0 { // "- " and ") " count as a dash and a parenthesis
			if sep == 0 || sep == ' ' || b == '(' || sep == ')' && b == '-' {
				if !(sep == ')' && b == '-') {
					sep = b
				}
			} else {
				return 0, at
			}
		}
		at += size
	}
	if at < len(text) && isDigit(text[at]) {
		return sep, at
	}
	return 0, at
}

// dateAt returns the number of groups from g on that form a date, or 0.
func dateAt(text []byte, n *number, g int) int {
	if g+2 >= n.n || n.plus && g == 0 {
		return 0
	}
	a, b, c := n.groups[g], n.groups[g+1], n.groups[g+2]
	if !tight(b.sep) || b.sep != c.sep || b.size() > 2 || a.sep == '(' || g+3 < n.n && n.groups[g+3].sep == b.sep {
		return 0
	}
	value := func(g group) int { return decimal(text[g.start:g.end]) }
	month := func(g group) bool { return g.size() <= 2 && value(g) >= 1 && value(g) <= 12 }
	day := func(g group) bool { return g.size() <= 2 && value(g) >= 1 && value(g) <= 31 }
	year := func(g group) bool { return g.size() == 4 && value(g) >= 1800 && value(g) < 2200 }
	if year(a) && month(b) && day(c) || (year(c) || c.size() == 2) && (month(a) && day(b) || day(a) && month(b)) {
		return 3
	}
	return 0
}

func decimal(digits []byte) int {
	v := 0
	for _, d := range digits {
		v = v*10 + int(d-'0')
	}
	return v
}

// collect appends the digits of groups to buf.
func (n *number) collect(buf, text []byte, from, to int) []byte {
	for _, g := range n.groups[from:to] {
		buf = append(buf, text[g.start:g.end]...)
	}
	return buf
}

// count returns the number of digits in the groups.
func (n *number) count(from, to int) int {
	sum := 0
	for _, g := range n.groups[from:to] {
		sum += g.size()
	}
	return sum
}

// shape is the layout of a number: the sizes of its groups and the separators.
type shape struct {
	sizes []int
	seps  []byte // before each group except the first
	weak  bool   // needs a context word
}

// parseShape reads a shape such as "3-2-4" or "2 3 3".
func parseShape(text string) (shape, error) {
	var sh shape
	at := 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && isDigit(text[i]) {
			continue
		}
		size := decimal([]byte(text[at:i]))
		if i == at || size == 0 || size > maxDigits {
			return sh, fmt.Errorf("shape %q: write sizes of groups with one character between them, such as 3-2-4", text)
		}
		sh.sizes = append(sh.sizes, size)
		if i < len(text) {
			sh.seps = append(sh.seps, text[i])
		}
		at = i + 1
	}
	if len(sh.sizes) > maxGroups {
		return sh, fmt.Errorf("shape %q has more than %d groups", text, maxGroups)
	}
	return sh, nil
}

// shaped finds a number with one of the shapes of a rule.
func (s *scan) shaped(text []byte, n *number, g int, r *rule) int {
	if n.plus && g == 0 {
		return g
	}
	for i := range r.shapes {
		sh := &r.shapes[i]
		to := g + len(sh.sizes)
		if !sh.fits(n, g) || !bounded(text, n, to) || s.denied(r, n.groups[g].start) {
			continue
		}
		if (sh.weak || sh.spaced() && s.row(text, n) != shortRow) && (s.joined || !s.near(r, n.groups[g].start)) {
			continue
		}
		var buf [maxDigits * 2]byte
		if r.check != nil && !r.check(n.collect(buf[:0], text, g, to)) {
			continue
		}
		s.add(n.groups[g].start, n.groups[to-1].end, r)
		return to
	}
	return g
}

// spaced reports whether only blanks indicate that the groups belong together.
func (sh *shape) spaced() bool { return len(sh.seps) > 0 && sh.seps[0] == ' ' }

func (sh *shape) fits(n *number, g int) bool {
	if g+len(sh.sizes) > n.n {
		return false
	}
	for k, size := range sh.sizes {
		if at := n.groups[g+k]; at.size() != size || k > 0 && at.sep != sh.seps[k-1] {
			return false
		}
	}
	return true
}

// card finds a payment card number: in one group, or in several of which the first has four digits.
func (s *scan) card(text []byte, n *number, g int, r *rule) int {
	if n.plus && g == 0 || s.bare && (!s.near(r, n.start) || s.key != nil && identifies(s.key.name)) {
		return g
	}
	for to := min(n.n, g+6); to > g; to-- {
		count := n.count(g, to)
		if count < 12 || count > 19 || !bounded(text, n, to) && !column(text, n, to) || !cardGroups(n, g, to) || s.denied(r, n.groups[g].start) {
			continue
		}
		var buf [maxDigits * 2]byte
		digits := n.collect(buf[:0], text, g, to)
		near := !s.joined && s.near(r, n.groups[g].start)
		if !near && to > g+1 && (s.row(text, n) == dumpRow || s.row(text, n) == tableRow && !printed(n, g, to)) {
			return g
		}
		if r.check(digits) && (near || usual(digits, to > g+1)) || near && count >= 13 && luhn(digits) && varied(digits) {
			s.add(n.groups[g].start, n.groups[to-1].end, r)
			return to
		}
	}
	return g
}

// column reports whether a comma follows the groups.
func column(text []byte, n *number, to int) bool {
	end := n.groups[to-1].end
	return to == n.n && end < len(text) && text[end] == ','
}

// identifies reports whether a name is that of an identifier. One in ten numeric identifiers has a
// valid card checksum.
func identifies(name string) bool {
	return strings.EqualFold(name, "id") || strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "-id") || strings.HasSuffix(name, "Id") ||
		strings.HasSuffix(name, "ID")
}

// usual reports whether a card number has a length that is usual for its network. Other lengths
// need a context word.
func usual(digits []byte, grouped bool) bool {
	switch len(digits) {
	case 12, 14, 15, 16:
		return true
	case 13, 19:
		return digits[0] == '4' || grouped
	}
	return grouped
}

// printed reports whether the groups are those printed on cards: fours, or 4-6-5 and 4-6-4.
func printed(n *number, g, to int) bool {
	if n.groups[g+1].size() == 6 {
		return to == g+3
	}
	for k := g + 1; k < to-1; k++ {
		if n.groups[k].size() != 4 {
			return false
		}
	}
	return n.groups[to-1].size() <= 4
}

func cardGroups(n *number, g, to int) bool {
	if to == g+1 {
		return true
	}
	if n.groups[g].size() != 4 || to < g+3 {
		return false
	}
	for k := g + 1; k < to; k++ {
		if n.groups[k].sep != n.groups[g+1].sep || n.groups[k].sep != ' ' && n.groups[k].sep != '-' && n.groups[k].sep != '.' {
			return false
		}
		if size := n.groups[k].size(); size > 7 || size < 3 && k < to-1 {
			return false
		}
	}
	return true
}
