package redact

import (
	"bytes"
	"unicode"
)

// assigned finds a value that is assigned to a name with the keyword text[start:end]: in programs,
// configuration, headers, command lines and prose.
func (s *scan) assigned(text []byte, start, end int, r *rule) {
	if !isName(text, start, end) {
		return
	}
	at, flag := nameEnd(text, start, end)
	if at < 0 {
		return
	}
	v, ok := assignment(text, start, at, flag)
	if !ok || v.start >= v.end || !s.spend((v.end-v.start)*r.cost) {
		return
	}
	if from, ok := r.takes(text[v.start:v.end], v.how); ok {
		end := v.end
		if r.Like == "password" && !v.quoted && !v.said { // a sign at its end could be part of it
			end = skip(text, end, "!?", 8)
		}
		s.add(v.start+from, end, r)
	}
}

// isName reports whether a keyword is a separate word within a name: API_KEY and apiKey, but not
// monkey or keyboard.
func isName(text []byte, start, end int) bool {
	if start > 0 && isLetter(text[start-1]) && end-start <= 4 {
		return isLower(text[start-1]) && isUpper(text[start])
	}
	return true
}

// nameEnd returns the end of the name that contains the keyword text[start:end], or -1 if the name
// says that its value isn't a secret (token_count, passwordField). Flag reports whether the name is
// a command-line option.
func nameEnd(text []byte, start, end int) (at int, flag bool) {
	at = end
	for at < len(text) && at-end < 40 && (isWord(text[at]) || (text[at] == '-' || text[at] == '.') && at+1 < len(text) && isWord(text[at+1])) {
		at++
	}
	tail := text[end:at]
	if len(tail) > 0 && isLetter(tail[0]) && (isLower(tail[0]) || isUpper(text[end-1])) {
		return -1, false // the keyword is the beginning of another word
	}
	if bytes.Contains(tail, []byte(".")) && !bytes.HasPrefix(tail, []byte("_")) {
		return -1, false
	}
	if harmless(tail) {
		return -1, false
	}
	key := start
	for start > 0 && end-start < 40 && isToken(text[start-1]) {
		start--
	}
	if public(text[start:key]) {
		return -1, false
	}
	return at, bytes.HasPrefix(text[start:], []byte("-")) && (start == 0 || isSpace(text[start-1]) || text[start-1] == '"' || text[start-1] == '\'')
}

// public reports whether the part of a name before a keyword makes it the name of something that
// isn't a secret.
func public(head []byte) bool {
	head = bytes.ToLower(bytes.TrimRight(head, "_-."))
	for _, word := range []string{"public", "publishable", "primary", "foreign", "partition", "sort", "cache", "idempotency", "page", "next", "max", "object", "i18n",
		"translation", "row", "group", "order", "index", "unique", "hot", "short", "arrow", "map", "react"} {
		if bytes.HasSuffix(head, []byte(word)) {
			return true
		}
	}
	return false
}

// harmless reports whether the part of a name after a keyword makes it the name of something about
// a secret.
func harmless(tail []byte) bool {
	tail = bytes.ToLower(bytes.Trim(tail, "_-0123456789"))
	if i := bytes.LastIndexAny(tail, "_-"); i >= 0 {
		tail = tail[i+1:]
	}
	switch string(tail) {
	case "id", "ids", "hash", "name", "names", "type", "count", "counts", "length", "len", "limit", "usage", "used", "url", "uri", "path", "file", "expires",
		"expiry", "expiration", "expire", "at", "ttl", "field", "fields", "label", "hint", "policy", "reset", "env", "var", "size", "index", "version", "arn",
		"ref", "refs", "format", "prefix", "regex", "pattern", "enabled", "required", "placeholder", "page", "input", "column", "status", "error",
		"digest", "fingerprint", "checksum", "algorithm", "alg", "issuer", "endpoint", "provider", "class", "manager", "service", "event", "budget",
		"price", "cost", "per", "max", "min", "total", "date", "time", "seconds", "days", "rotation", "strength", "dir", "kind", "store", "region":
		return true
	}
	return false
}

// how describes the way a value was written.
type how struct {
	quoted bool
	said   bool // "is", or a blank: not an assignment
	env    bool // NAME=value or --name=value, as in a shell: the value is never a name in a program
}

// assignedValue is the position of a value and the way it was written.
type assignedValue struct {
	start, end int
	how
}

// assignment reads an assignment sign at text[at:], after a name that contains text[keyword], and
// the value.
func assignment(text []byte, keyword, at int, flag bool) (v assignedValue, ok bool) {
	name := at
	at = skip(text, pastColours(text, at), "\"'`\\] \t", 8)
	if at >= len(text) {
		return v, false
	}
	rest := text[at:]
	switch sign := signAt(rest); {
	case sign > 0:
		v.env = sign == 1 && rest[0] == '=' && at == name && (flag || !bytes.ContainsFunc(text[keyword:name], unicode.IsLower))
		at += sign
	case text[at] == '>' && at == name: // <token>…
		return untilTag(text, skip(text, at+1, " \t\r\n", 64)), true
	case bytes.HasPrefix(rest, []byte("is ")) && isSpace(text[at-1]):
		at, v.said = at+3, true
	case rest[0] == ',' && quoteFollows(rest[1:]) && firstArgument(text, keyword): // set("password", "…")
		at++
	case rest[0] == '(' && at == name && quoteFollows(rest[1:]): // password("…")
		at, v.said = at+1, true
	case flag && at > name:
		v.said = true
	default:
		// A type may come in between: var token string = "…"
		typed := pastType(text, at)
		if typed == at || at == name {
			return v, false
		}
		at = typed
	}
	at = skip(text, pastColours(text, at), " \t", 64)
	at = pastType(text, pastColours(text, at))
	return valueAt(text, at, v), true
}

// signAt returns the length of the assignment sign at the start of text, or 0 if there is none: = :
// := => -> ?= .= and more.
func signAt(text []byte) int {
	for _, sign := range []string{"%3D", "%3A", "=>", "->"} {
		if bytes.HasPrefix(text, []byte(sign)) {
			return len(sign)
		}
	}
	n := 0
	for n < len(text) && n < 3 && bytes.IndexByte([]byte(":?.|+"), text[n]) >= 0 {
		n++
	}
	switch {
	case n < len(text) && text[n] == '=':
		if n == 0 && len(text) > 1 && text[1] == '=' {
			return 0 // a comparison
		}
		return n + 1
	case n == 1 && text[0] == ':':
		return 1
	}
	return 0
}

// firstArgument reports whether the name around text[at] is the first, quoted argument of a call.
func firstArgument(text []byte, at int) bool {
	for at > 0 && isToken(text[at-1]) {
		at--
	}
	return at > 1 && (text[at-1] == '"' || text[at-1] == '\'') && text[at-2] == '('
}

// quoteFollows reports whether a quote comes next, ignoring blanks.
func quoteFollows(text []byte) bool {
	i := skip(text, 0, " \t\\", 8)
	return i < len(text) && (text[i] == '"' || text[i] == '\'')
}

// untilTag returns the value between two tags, without surrounding white space.
func untilTag(text []byte, at int) (v assignedValue) {
	v.start, v.end = at, at
	for v.end < len(text) && text[v.end] != '<' && v.end-at < 4096 {
		v.end++
	}
	for v.end > at && isSpace(text[v.end-1]) {
		v.end--
	}
	v.quoted = true
	return v
}

// skip returns the position after at most n bytes of a set.
func skip(text []byte, at int, set string, n int) int {
	for ; n > 0 && at < len(text) && bytes.IndexByte([]byte(set), text[at]) >= 0; n-- {
		at++
	}
	return at
}

// pastType skips the type in password: str = "…".
func pastType(text []byte, at int) int {
	end := at
	for end < len(text) && end-at < 32 && (isWord(text[end]) || text[end] == '[' || text[end] == ']' || text[end] == '.') {
		end++
	}
	next := skip(text, end, " ", 4)
	if end > at && next > end && next+1 < len(text) && text[next] == '=' && text[next+1] != '=' {
		return skip(text, next+1, " ", 4)
	}
	return at
}

// valueAt reads the value at text[at:], up to its closing quote or to the first byte that cannot be
// in an unquoted value.
func valueAt(text []byte, at int, v assignedValue) assignedValue {
	for at+1 < len(text) && bytes.IndexByte([]byte("bfru@$"), text[at]) >= 0 && (text[at+1] == '"' || text[at+1] == '\'') {
		at++
	}
	open := at
	at = skip(text, at, `\`, 8)
	if at < len(text) && bytes.IndexByte([]byte("\"'`"), text[at]) >= 0 {
		quote := text[open : at+1]
		at++
		v.start, v.quoted = at, true
		if n := bytes.Index(text[at:min(len(text), at+4096)], quote); n >= 0 {
			v.end = at + n
			return v
		}
		v.end = min(len(text), at+4096)
		if n := bytes.IndexByte(text[at:v.end], '\n'); n >= 0 {
			v.end = at + n
		}
		return v
	}
	v.start, v.end = open, open
	for v.end < len(text) && v.end-open < 4096 && text[v.end] > ' ' && bytes.IndexByte([]byte("\"'`<>,;|\\"), text[v.end]) < 0 && !nextParameter(text[v.end:]) {
		v.end++
	}
	for v.end > v.start && bytes.IndexByte([]byte(".,!?:)]}"), text[v.end-1]) >= 0 {
		if b := text[v.end-1]; b == ')' && bytes.IndexByte(text[v.start:v.end], '(') >= 0 || b == ']' && bytes.IndexByte(text[v.start:v.end], '[') >= 0 ||
			b == '}' && bytes.IndexByte(text[v.start:v.end], '{') >= 0 {
			break
		}
		v.end--
	}
	return v
}

// nextParameter reports whether another query parameter begins: &name=
func nextParameter(text []byte) bool {
	if text[0] != '&' {
		return false
	}
	i := 1
	for i < len(text) && isToken(text[i]) {
		i++
	}
	return i < len(text) && text[i] == '=' || bytes.HasPrefix(text, []byte("&amp;"))
}

// takes reports whether the rule matches a value that is assigned to one of its keywords, and where
// the match begins: it leaves out the scheme of a header.
func (r *rule) takes(value []byte, h how) (from int, ok bool) {
	for _, scheme := range []string{"Bearer ", "Basic ", "Token ", "token ", "bearer ", "basic ", "ApiKey ", "Bot "} {
		if bytes.HasPrefix(value, []byte(scheme)) {
			from = len(scheme)
		}
	}
	value = unmarked(value[from:])
	if placeholder(value) || camelPhrase(value) {
		return 0, false
	}
	if r.pattern != nil {
		return from, r.first.fits(value) && r.pattern.Match(value) && (r.Entropy == 0 || entropy(value) >= r.Entropy) &&
			(r.check == nil || r.check(value))
	}
	switch r.Like {
	case "password":
		return from, likePassword(value, h)
	case "key":
		return from, !h.said && likeKey(value)
	}
	return from, likeToken(value, h)
}
