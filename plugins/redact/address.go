package redact

import (
	"bytes"
	"net/netip"
	"unicode"
	"unicode/utf8"
)

// ipv4 finds four dot-separated groups that are the address of a host rather than a version.
func (s *scan) ipv4(text []byte, n *number, g int, r *rule) int {
	to := g + 4
	if to > n.n || n.plus && g == 0 {
		return g
	}
	for k := g; k < to; k++ {
		at := n.groups[k]
		if at.size() > 3 || k > g && at.sep != '.' || at.size() > 1 && text[at.start] == '0' || decimal(text[at.start:at.end]) > 255 {
			return g
		}
	}
	start, end := n.groups[g].start, n.groups[to-1].end
	if to < n.n && n.groups[to].sep == '.' || s.denied(r, start) {
		return g
	}
	if end < len(text) && (isWord(text[end]) || text[end] == '.' && end+1 < len(text) && isWord(text[end+1])) {
		return g // 1.2.3.4.tar.gz
	}
	if start > 1 && text[start-1] == '/' && isLetter(text[start-2]) || start > 0 && bytes.IndexByte([]byte("^~=<>"), text[start-1]) >= 0 && start > 1 &&
		bytes.IndexByte([]byte("=<>~ "), text[start-2]) >= 0 {
		return g // Chrome/1.2.3.4, pkg==1.2.3.4
	}
	addr, err := netip.ParseAddr(string(text[start:end]))
	if err != nil || ordinary(addr) || section(addr) && !s.near(r, start) && !(start > 0 && (text[start-1] == '@' || text[start-1] == '/')) &&
		!(end < len(text) && (text[end] == '/' || text[end] == ':')) {
		return g
	}
	s.add(start, end, r)
	return to
}

// section reports whether the four numbers are small enough for a chapter, a version or an object
// identifier.
func section(a netip.Addr) bool {
	b := a.As4()
	return b[0] < 10 && b[1] < 30 && b[2] < 30 && b[3] < 60 && (b[0] != b[1] || b[0] != b[2] && b[1] != b[2])
}

// ordinary reports whether an address tells nothing about a host: loopback, unspecified, broadcast
// and netmasks.
func ordinary(a netip.Addr) bool {
	if a.IsLoopback() || a.IsUnspecified() {
		return true
	}
	if !a.Is4() {
		return false
	}
	b := a.As4()
	return b[0] == 0 || b[0] == 255
}

// colons finds the IPv6 or MAC address that contains the sign at text[at].
func (s *scan) colons(text []byte, at int) {
	sep := text[at]
	if at+1 >= len(text) || at > 0 && !isHex(text[at-1]) && text[at-1] != ':' || !isHex(text[at+1]) && text[at+1] != ':' {
		return
	}
	start, end := at, at
	for start > 0 && at-start < 5 && isHex(text[start-1]) {
		start--
	}
	for end < len(text) && end-start < 48 && (isHex(text[end]) || text[end] == sep || sep == ':' && text[end] == '.') {
		end++
	}
	if start > 0 && (text[start-1] == ':' || text[start-1] == sep || isWord(text[start-1]) && !escapeEnds(text, start)) ||
		end < len(text) && isWord(text[end]) {
		return
	}
	for end > start && (text[end-1] == '.' || text[end-1] == sep && !bytes.HasSuffix(text[start:end], []byte("::"))) {
		end--
	}
	value := text[start:end]
	if s.r.mac != nil && isMAC(value, sep) {
		s.add(start, end, s.r.mac)
		return
	}
	if s.r.ipv6 == nil || sep != ':' || bytes.Count(value, []byte(":")) < 2 {
		return
	}
	addr, err := netip.ParseAddr(string(value))
	if err != nil || ordinary(addr) || !telling(value) {
		return
	}
	s.add(start, end, s.r.ipv6)
}

func isMAC(v []byte, sep byte) bool {
	if len(v) != 17 {
		return false
	}
	same := true
	for i := 2; i < 17; i += 3 {
		if v[i] != sep {
			return false
		}
		same = same && v[i-2] == v[15] && v[i-1] == v[16]
	}
	return !same
}

// telling reports whether a valid IPv6 address is certainly meant as one. Names in programs, such
// as ab::cd, could be one too, and so could eight bytes of a serial number.
func telling(v []byte) bool {
	groups, digits, long, pairs := 0, 0, false, true
	for g := range bytes.SplitSeq(v, []byte(":")) {
		if len(g) > 0 {
			groups++
		}
		long, pairs = long || len(g) == 4, pairs && len(g) == 2
		for _, b := range g {
			if isDigit(b) {
				digits++
			}
		}
	}
	return digits > 0 && groups >= 2 && (long || groups >= 4) && !pairs
}

// email finds the address around the sign at text[at:end], which is @ or the start of its escape in
// URLs.
func (s *scan) email(text []byte, at, end int) {
	if s.r.email == nil || at > 0 && at == s.sign {
		return
	}
	if text[at] == '%' { // %40
		if end >= len(text) || text[end] != '0' {
			return
		}
		end++
	}
	start := at
	for start > 0 && at-start <= 64 {
		r, size := utf8.DecodeLastRune(text[:start])
		if !isLocal(r) {
			break
		}
		start -= size
	}
	for start < at && bytes.IndexByte([]byte(".'-+%&/=?"), text[start]) >= 0 {
		start++
	}
	start = afterEscape(text, start, at)
	if start == at || text[at-1] == '.' {
		return
	}
	to, last := domain(text, end)
	if to == 0 || notTLD(text[last:to]) {
		return
	}
	if string(text[start:at]) == "git" && to < len(text) && (text[to] == ':' || text[to] == '/') {
		return
	}
	s.add(start, to, s.r.email)
}

// afterEscape returns the start of a name, after skipping the rest of a written-out escape: \n or
// %3D.
func afterEscape(text []byte, start, end int) int {
	start = afterColour(text, start)
	for i := start + 1; i < min(end, start+3); i++ {
		if escapeEnds(text, i) && text[i-1] != '%' {
			return i
		}
	}
	for i := start; i+3 <= end; i++ {
		if text[i] == '%' && isHex(text[i+1]) && isHex(text[i+2]) {
			start = i + 3
		}
	}
	return start
}

// isLocal reports whether a character can be in the unquoted local part of an address.
func isLocal(r rune) bool {
	if r < 0x80 {
		return isWord(byte(r)) || bytes.IndexByte([]byte(".+-%'&!#$*?^~"), byte(r)) >= 0
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r))
}

// domain reads a host name with at least one dot at text[at:]. It returns its end and the start of
// its last label, or 0 if there is none.
func domain(text []byte, at int) (end, last int) {
	label, dots := at, 0
	i := at
	for i < len(text) && i-at < 254 {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r < 0x80 && (isLetter(byte(r)) || isDigit(byte(r))), r >= 0x80 && r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsMark(r)):
		case r == '-' && i > label:
		case r == '.' && i > label && text[i-1] != '-':
			next, _ := utf8.DecodeRune(text[i+1:])
			if i+1 >= len(text) || next < 0x80 && !isLetter(byte(next)) && !isDigit(byte(next)) || next >= 0x80 && !unicode.IsLetter(next) {
				return finish(text, label, i, dots)
			}
			dots++
			label = i + 1
		default:
			return finish(text, label, i, dots)
		}
		i += size
	}
	return finish(text, label, i, dots)
}

func finish(text []byte, label, end, dots int) (int, int) {
	for end > label && text[end-1] == '-' {
		end--
	}
	if dots == 0 || utf8.RuneCount(text[label:end]) < 2 {
		return 0, 0
	}
	return end, label
}

// notTLD reports whether a label cannot be the last one of a domain: digits, or a file extension,
// as in logo@2x.png.
func notTLD(label []byte) bool {
	if bytes.HasPrefix(label, []byte("xn--")) {
		return false
	}
	for _, b := range label {
		if isDigit(b) || b == '-' {
			return true
		}
	}
	switch string(bytes.ToLower(label)) {
	case "png", "jpg", "jpeg", "gif", "svg", "webp", "bmp", "ico", "tiff", "js", "jsx", "ts", "tsx", "mjs", "css", "scss", "html", "json",
		"xml", "yaml", "yml", "toml", "txt", "csv", "pdf", "exe", "dll", "jar", "tgz", "gz", "whl", "lock", "tar", "mp4", "mp3", "avif", "min":
		return true
	}
	return false
}

// url finds credentials in the authority of the URL whose :// is text[at:end]: everything between
// the first colon and the last @ or, if there is no colon, a long text before the @.
func (s *scan) url(text []byte, at, end int) {
	if s.r.url == nil || at == 0 || !isLetter(text[at-1]) && !isDigit(text[at-1]) {
		return
	}
	colon, sign := -1, -1
	i := end
loop:
	for ; i < len(text) && i-end < 512; i++ {
		if text[i] == '[' {
			if mark := markAt(text, i); mark > 0 {
				i = mark - 1
				continue
			}
		}
		switch b := text[i]; {
		case b == ':' && colon < 0:
			colon = i
		case b == '@':
			sign = i
		case b <= ' ' || b == '"' || b == '\'' || b == '<' || b == '>' || b == '`' || b == '\\':
			break loop
		case b == '/' || b == '?' || b == '#':
			if sign >= 0 || colon < 0 || !atFollows(text[i:]) {
				break loop
			}
		}
	}
	if sign < 0 {
		return
	}
	from := colon + 1
	if colon < 0 || colon > sign {
		from = end
		if sign-from < 16 || entropy(unmarked(text[from:sign])) < 3 {
			return
		}
	}
	s.sign = sign
	if sign == from+1 && isWord(text[from]) || sign > from && !placeholder(unmarked(text[from:sign])) {
		s.add(from, sign, s.r.url)
	}
}

// atFollows reports whether an @ follows before any byte that cannot be in a password in a URL.
func atFollows(text []byte) bool {
	for i, b := range text[:min(len(text), 64)] {
		if b == '@' {
			return i+1 < len(text) && isWord(text[i+1])
		}
		if b <= ' ' || b == '"' || b == '\'' || b == '<' || b == '>' || b == ',' || b == '&' {
			return false
		}
	}
	return false
}
