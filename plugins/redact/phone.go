package redact

import "bytes"

// phone finds a telephone number in the groups from g on. Numbers with a country code, or in the
// usual notation of some country, are accepted as they are. Ambiguous numbers need a context word
// about telephones.
func (s *scan) phone(text []byte, n *number, g int, r *rule) int {
	if s.denied(r, n.groups[g].start) {
		return g
	}
	near := !s.joined && s.near(r, n.groups[g].start)
	if g == 0 && !near && partOf(text, n.start) {
		return g
	}
	for to := min(n.n, g+7); to > g; to-- {
		count := n.count(g, to)
		if count < 6 || count > 17 {
			continue
		}
		named := to == n.n && calledBy(text, n.end)
		if !bounded(text, n, to) && !extension(text, n, to) && !named || to > g+1 && beforeColon(text, n, to) {
			continue
		}
		if dated(text, n, g, to) || to == g+1 && measured(text, n, to) || s.row(text, n) != shortRow {
			return g
		}
		plus := n.plus && g == 0
		if plus && international(text, n, g, to, count) || !plus && national(text, n, g, to, count) ||
			!plus && (near && (to > g+1 || count > 8 || s.close(r, n.groups[g].start)) || named && !s.joined) && spoken(text, n, g, to, count) {
			start := n.groups[g].start
			if g == 0 {
				start = n.start
			} else if n.groups[g].sep == '(' && text[start-1] == '(' {
				start--
			}
			s.add(start, extended(text, n.groups[to-1].end), r)
			return to
		}
	}
	return g
}

// partOf reports whether the text at text[at] continues as a time of day, an address with colons, a
// path or a range.
func partOf(text []byte, at int) bool {
	return at > 1 && (text[at-1] == ':' && isHex(text[at-2]) || text[at-1] == '/' || text[at-1] == '.')
}

// beforeColon reports whether the last group begins a time of day or an address with colons.
func beforeColon(text []byte, n *number, to int) bool {
	end := n.groups[to-1].end
	return n.groups[to-1].size() <= 2 && end+1 < len(text) && text[end] == ':' && isHex(text[end+1])
}

// measured reports whether the group before to is a size: a unit or the date of a file follows.
func measured(text []byte, n *number, to int) bool {
	if to < n.n {
		return dateAt(text, n, to) > 0
	}
	rest := text[skip(text, n.groups[to-1].end, " ", 1):]
	for _, unit := range []string{"kB", "KB", "MB", "GB", "KiB", "MiB", "B", "bytes", "ms", "ns", "us"} {
		if bytes.HasPrefix(rest, []byte(unit)) && (len(rest) == len(unit) || !isWord(rest[len(unit)])) {
			return true
		}
	}
	return false
}

// dated reports whether the groups contain a date.
func dated(text []byte, n *number, g, to int) bool {
	for k := g; k < to; k++ {
		if dateAt(text, n, k) > 0 {
			return true
		}
	}
	return false
}

// calledBy reports whether the word after a number says that it is a telephone number: 555 0123
// (mobile), 555-0123-Fax.
func calledBy(text []byte, end int) bool {
	at := skip(text, end, " -(,", 2)
	word := text[at:min(len(text), at+8)]
	if at == end || at > end+2 {
		return false
	}
	for _, name := range []string{"fax", "office", "mobile", "cell", "phone", "tel", "home)", "work)", "whatsapp", "landline", "voice"} {
		if len(word) >= len(name) && bytes.EqualFold(word[:len(name)], []byte(name)) {
			return at+len(name) >= len(text) || !isLetter(text[at+len(name)])
		}
	}
	return false
}

// extension reports whether an extension follows the groups, as in 555-0123x42.
func extension(text []byte, n *number, to int) bool {
	return to == n.n && extended(text, n.groups[to-1].end) > n.groups[to-1].end
}

// extended returns the end of a telephone number, including any extension.
func extended(text []byte, end int) int {
	at := end
	for at < len(text) && text[at] == ' ' && at-end < 2 {
		at++
	}
	rest := text[at:]
	for _, word := range []string{"extension", "ext.", "ext", "x", "#"} {
		if len(rest) < len(word) || !bytes.EqualFold(rest[:len(word)], []byte(word)) {
			continue
		}
		at += len(word)
		for at < len(text) && text[at] == ' ' {
			at++
		}
		digits := at
		for at < len(text) && isDigit(text[at]) {
			at++
		}
		if n := at - digits; n >= 1 && n <= 6 && (at == len(text) || !isWord(text[at])) {
			return at
		}
		return end
	}
	return end
}

// even reports whether the separators of the groups are those of a telephone number: all of one
// kind, apart from parentheses.
func even(n *number, g, to int) bool {
	var kind byte
	for k := g + 1; k < to; k++ {
		switch sep := n.groups[k].sep; {
		case sep == '(' || sep == ')':
		case kind == 0:
			kind = sep
		case kind != sep && (kind == '.' || sep == '.'):
			return false
		}
	}
	return true
}

// international accepts numbers with a plus sign and a country code.
func international(text []byte, n *number, g, to, count int) bool {
	first := n.groups[g]
	switch text[first.start] {
	case '0':
		return false
	case '1', '7': // North America, Russia: eleven digits
		return count == 11 && even(n, g, to)
	}
	return count >= 8 && count <= 16 && even(n, g, to) && (to > g+1 || varied(text[first.start:first.end]))
}

// national accepts numbers in a notation that some country uses for telephone numbers and that is
// used for little else.
func national(text []byte, n *number, g, to, count int) bool {
	first := n.groups[g]
	digits := text[first.start:first.end]
	sizes := [8]int{}
	for k := g; k < to; k++ {
		sizes[k-g] = n.groups[k].size()
	}
	groups := to - g
	if !even(n, g, to) || countedUp(text, n, g, to) {
		return false
	}
	last := n.groups[to-1]
	switch {
	case groups == 1 && count == 11 && digits[0] != '0': // mobile telephones of China and Russia
		return digits[0] == '1' && digits[1] >= '3' || (digits[0] == '7' || digits[0] == '8') && digits[1] == '9'
	case first.sep != '(' && digits[0] == '0' && len(digits) >= 2 && digits[1] == '0': // 00 and a country code
		after := append(digits[2:len(digits):len(digits)], text[n.groups[min(g+1, to-1)].start])
		return count >= 10 && groups >= 3 && after[0] != '0'
	case first.sep == '(' && first.size() >= 2 && first.size() <= 5: // (0116) 496 0123
		return groups >= 2 && n.groups[g+1].sep == ')' && count >= 8 && count <= 12
	case digits[0] == '0': // trunk prefix
		if groups == 1 {
			return (count == 10 || count == 11) && varied(digits)
		}
		return count >= 9 && count <= 12 && len(digits) <= 5 && last.size() >= 2 && (last.sep != '.' || groups > 2 && len(digits) > 1)
	case groups >= 3 && sizes[0] == 1 && (digits[0] == '1' || digits[0] == '8' || digits[0] == '7') && count == 11 && sizes[1] == 3 && sizes[2] == 3:
		return true // 1-800-555-0123, 8 (495) 123-45-67
	case groups == 3 && sizes == [8]int{3, 3, 4}: // 415-555-0123
		return digits[0] >= '2' && (last.sep != ' ' || n.groups[g+1].sep == '(' || text[n.groups[g+1].start] >= '2') && last.sep != '/'
	case groups == 3 && sizes == [8]int{3, 4, 4}: // 138-1234-5678
		return digits[0] == '1' && digits[1] >= '3' && last.sep != '.'
	case groups == 4 && (sizes == [8]int{3, 2, 2, 2} || sizes == [8]int{2, 3, 2, 2}):
		return digits[0] >= '6' && last.sep == ' '
	case groups == 3 && (sizes == [8]int{2, 4, 4} || sizes == [8]int{2, 5, 4}): // 11 91234-5678
		return last.sep == '-'
	case groups == 2 && sizes == [8]int{5, 5} && last.sep == ' ': // 98765 43210
		return digits[0] >= '6'
	}
	return false
}

// countedUp reports whether each group is one more than the previous: a calendar or a ruler.
func countedUp(text []byte, n *number, g, to int) bool {
	for k := g + 1; k < to; k++ {
		a, b := n.groups[k-1], n.groups[k]
		if decimal(text[b.start:b.end]) != decimal(text[a.start:a.end])+1 {
			return false
		}
	}
	return to > g+1
}

// spoken accepts possible telephone numbers next to words that say they are.
func spoken(text []byte, n *number, g, to, count int) bool {
	if count < 7 || count > 15 || !even(n, g, to) || n.groups[to-1].sep == '.' && to < g+3 {
		return false
	}
	var buf [maxDigits * 2]byte
	if digits := n.collect(buf[:0], text, g, to); !varied(digits) {
		return false
	}
	return to == g+1 || n.groups[to-1].size() >= 2
}
