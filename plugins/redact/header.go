package redact

import "bytes"

// header finds a private key between two lines of dashes, beginning at text[start]. Line feeds may
// be written out as \n. A key without an end extends as far as its body does, because the end may
// be missing from a stream.
func (s *scan) header(text []byte, start int) {
	rest := text[start:]
	head := rest[:min(len(rest), 80)]
	if !bytes.Contains(head, []byte("PRIVATE KEY")) {
		return
	}
	from := bytes.Index(head, []byte("PRIVATE KEY")) + len("PRIVATE KEY")
	for from < len(rest) && (isLetter(rest[from]) || rest[from] == ' ') {
		from++
	}
	dashes := from
	for from < len(rest) && rest[from] == '-' {
		from++
	}
	if from-dashes < 4 {
		return
	}
	end := from
	for end < len(rest) {
		if rest[end] == '[' {
			if mark := markAt(rest, end); mark > 0 { // part of it was redacted before
				end = mark
				continue
			}
		}
		if !isKeyBody(rest[end]) {
			break
		}
		if rest[end] == '-' && bytes.HasPrefix(rest[end:], []byte("---")) {
			s.add(start, start+footer(rest, end), s.r.pem)
			return
		}
		end++
	}
	// Without an end or a body, the text is only about keys.
	body := bytes.Map(func(r rune) rune {
		if r < 0x80 && (isLetter(byte(r)) || isDigit(byte(r))) {
			return r
		}
		return -1
	}, unmarked(rest[from:end]))
	if len(body) >= 24 {
		for end > from && (isSpace(rest[end-1]) || bytes.IndexByte([]byte(`"'\,`), rest[end-1]) >= 0) {
			end--
		}
		s.add(start, start+end, s.r.pem)
	}
}

// footer returns the end of the line of dashes at text[at].
func footer(text []byte, at int) int {
	end := at
	for end < len(text) && text[end] == '-' {
		end++
	}
	for end < len(text) && (isLetter(text[end]) || text[end] == ' ') {
		end++
	}
	for end < len(text) && text[end] == '-' {
		end++
	}
	return end
}

// isKeyBody reports whether a byte can occur between the lines: base64, headers such as Proc-Type,
// line ends, and the quotes and escapes of program text around them.
func isKeyBody(b byte) bool {
	return isWord(b) || isSpace(b) || bytes.IndexByte([]byte(`+/=-\"',:.()@`), b) >= 0
}
