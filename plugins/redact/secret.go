package redact

import (
	"bytes"
	"math"
)

// The appearance of secrets, and of other values in their place.

// likePassword reports whether a value is a password rather than a word about one.
func likePassword(v []byte, h how) bool {
	if len(v) < 4 || len(v) > 256 && bytes.IndexByte(v, ' ') >= 0 || v[len(v)-1] == ':' || bytes.ContainsAny(v, "\n\t") || h.quoted && bytes.Count(v, []byte(" ")) > 5 {
		return false
	}
	letters, digits, others, upper, spaces := kinds(v)
	if code(v, h) {
		return false
	}
	switch {
	case spaces > 0:
		return h.quoted && digits > 0 && others > 0
	case h.said:
		return len(v) >= 6 && letters > 0 && (digits > 0 || others > 0 && !bytes.ContainsAny(v, "-/'’"))
	case letters == 0:
		return digits+others >= 4
	case digits > 0 || others > 0 && !isPhrase(v):
		return len(v) >= 5
	case upper > 0 && upper < letters && !isUpper(v[0]):
		return len(v) >= 8
	}
	return h.quoted && len(v) >= 8 && entropy(v) >= 2.5 && !proseWord(v)
}

// likeToken reports whether a value looks random.
func likeToken(v []byte, h how) bool {
	if len(v) < 10 || len(v) > 4096 || bytes.ContainsAny(v, " \n\t") || code(v, h) {
		return false
	}
	letters, digits, _, upper, _ := kinds(v)
	e := entropy(v)
	if numberedPhrase(v) || bytes.Contains(bytes.ToLower(v), []byte("abcdefghijklm")) {
		return false
	}
	switch {
	case letters == 0:
		return false
	case digits >= 2 && len(v) >= 16:
		return e >= 3
	case digits > 0:
		return e >= 2.9 && (!h.said || digits >= 2)
	}
	return len(v) >= 20 && e >= 3.8 && upper >= 3 && upper < letters-3 && upper*4 > letters
}

// likeKey is likeToken for names that could also be those of public data: it excludes hashes and
// UUIDs.
func likeKey(v []byte) bool {
	if len(v) < 16 || v[0] == '/' || v[0] == '^' || v[0] == '*' || !likeToken(v, how{}) || entropy(v) < 3.5 {
		return false
	}
	for _, b := range v {
		if !isHex(b) && b != '-' {
			_, digits, _, upper, _ := kinds(v)
			return digits >= 2 && upper > 0
		}
	}
	return false
}

func kinds(v []byte) (letters, digits, others, upper, spaces int) {
	for _, b := range v {
		switch {
		case isUpper(b):
			upper++
			letters++
		case isLower(b) || b >= 0x80:
			letters++
		case isDigit(b):
			digits++
		case b == ' ':
			spaces++
		default:
			others++
		}
	}
	return
}

// isPhrase reports whether a value consists of words joined by dashes, underscores or dots.
func isPhrase(v []byte) bool {
	for _, b := range v {
		if !isLetter(b) && bytes.IndexByte([]byte("-_.:/?!,;"), b) < 0 {
			return false
		}
	}
	return true
}

// numberedPhrase reports whether a value is words followed by a version or number, such as
// jjwt-jackson-0.11.2.
func numberedPhrase(v []byte) bool {
	words := bytes.TrimRight(v, "0123456789.")
	if len(words) == len(v) || len(words) < 3 || len(v)-len(words) > 8 {
		return false
	}
	for _, b := range words {
		if !isLetter(b) && bytes.IndexByte([]byte("-_.:/@="), b) < 0 {
			return false
		}
	}
	return bytes.IndexAny(words, "-_:/@.") > 0
}

// code reports whether a value is an expression in a program rather than a literal.
func code(v []byte, h how) bool {
	if h.quoted {
		return false
	}
	if i := bytes.IndexAny(v, "([{"); i > 0 && isNames(v[:i]) {
		return true
	}
	if !isNames(v) {
		return false
	}
	dotted := bytes.IndexByte(v, '.') >= 0
	if _, digits, _, _, _ := kinds(v); h.env && digits > 0 && !dotted {
		return false
	}
	for part := range bytes.SplitSeq(v, []byte(".")) {
		if !programName(part) && (!dotted || len(part) >= 20) {
			return false
		}
	}
	return dotted || !bytes.Equal(bytes.ToLower(v), v)
}

// programName reports whether a word is more likely a name in a program than random.
func programName(word []byte) bool {
	_, digits, _, upper, _ := kinds(word)
	if digits == 0 || upper > 0 && bytes.Equal(bytes.ToUpper(word), word) && bytes.IndexByte(word, '_') >= 0 {
		return true
	}
	lower := bytes.ToLower(word)
	for _, known := range []string{"key", "token", "secret", "password", "test", "private", "config", "client", "cert", "string", "value", "user", "auth", "default", "params",
		"options", "model"} {
		if bytes.Contains(lower, []byte(known)) {
			return true
		}
	}
	return false
}

// camelPhrase reports whether a value is a type name: capitalized words, such as
// Cohere2VisionConfig.
func camelPhrase(v []byte) bool {
	letters, digits, others, upper, _ := kinds(v)
	return others <= 1 && digits <= 4 && upper >= 2 && letters >= 3*upper+2 && letters >= 12 && isNames(v) && digits*4 <= letters
}

// isNames reports whether a value is a name, or names separated by dots.
func isNames(v []byte) bool {
	for part := range bytes.SplitSeq(v, []byte(".")) {
		if len(part) == 0 || isDigit(part[0]) {
			return false
		}
		for _, b := range part {
			if !isWord(b) {
				return false
			}
		}
	}
	return true
}

// placeholder reports whether a value stands for a secret that is elsewhere.
func placeholder(v []byte) bool {
	if len(v) == 0 {
		return true
	}
	for _, sign := range []string{"${", "{{", "$(", "%(", "<", "***", "xxxx", "XXXX", "...", "…", "[REDACTED", "process.env", "os.environ", "os.getenv", "System.getenv",
		"•••"} {
		if bytes.Contains(v, []byte(sign)) {
			return true
		}
	}
	if v[0] == '$' && len(v) > 1 && isNames(v[1:]) || v[0] == '{' && v[len(v)-1] == '}' || v[0] == '%' && v[len(v)-1] == '%' || v[0] == '@' && isNames(v[1:]) {
		return true
	}
	if v[0] == '[' || v[0] == '(' || bytes.HasPrefix(v, []byte(`\u`)) {
		return true
	}
	same := true
	for _, b := range v {
		same = same && b == v[0]
	}
	lower := bytes.ToLower(v)
	for _, word := range []string{"your_", "your-", "yourapi", "yourtoken", "placeholder", "example_", "changeme", "change-me", "change_me", "replace", "insert_", "insert-",
		"enter_", "dummy", "redacted", "todo", "my_secret", "my-secret"} {
		if bytes.Contains(lower, []byte(word)) {
			return true
		}
	}
	return same || proseWord(lower)
}

// proseWord reports whether a value is a word that documents and schemas use in place of a secret.
func proseWord(v []byte) bool {
	switch string(bytes.ToLower(v)) {
	case "null", "none", "nil", "true", "false", "undefined", "string", "str", "text", "bytes", "int", "integer", "number", "bool", "boolean", "object", "array",
		"required", "optional", "hidden", "password", "passwd", "secret", "token", "empty", "unset", "missing", "invalid", "incorrect", "expired", "wrong",
		"correct", "unknown", "default", "disabled", "enabled", "sensitive", "encrypted", "hashed", "redacted", "removed", "masked", "omitted", "failed",
		"success", "authenticated", "weak", "strong", "something", "anything", "nothing", "protected", "private", "public", "internal", "continue", "plaintext",
		"keyword", "username", "optional[str]", "credentials", "authentication", "authorization", "forgotten":
		return true
	}
	return false
}

// entropy returns the Shannon entropy of v in bits per byte.
func entropy(v []byte) float64 {
	if len(v) == 0 {
		return 0
	}
	var counts [256]int
	for _, b := range v {
		counts[b]++
	}
	e := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(v))
			e -= p * math.Log2(p)
		}
	}
	return e
}
