package redact

// word finds an identifier of letters and digits that contains the digit text[at], and reports
// whether it did. It marks the digits of the word as seen.
func (s *scan) word(text []byte, at int) bool {
	start, end := at, at
	for start > 0 && at-start <= maxWord && (isLetter(text[start-1]) || isDigit(text[start-1])) {
		start--
	}
	for start < at && escapeEnds(text, start+1) && start > 0 && text[start-1] == '\\' {
		start++ // the n of \n isn't one of its letters
	}
	start = afterColour(text, start)
	for end < len(text) && end-at <= maxWord && (isLetter(text[end]) || isDigit(text[end])) {
		end++
	}
	s.until = max(s.until, end)
	if s.ibanAt(text, start) {
		return true
	}
	for _, r := range s.r.byLength[end-start] {
		value := text[start:end]
		if glued(text, start) || end < len(text) && (text[end] == '_' || text[end] == '-' && end+1 < len(text) && isWord(text[end+1])) {
			continue
		}
		if !s.spend(len(value) * (r.cost - 1)) {
			return false
		}
		if !r.first.fits(value) || !r.pattern.Match(value) || r.check != nil && !r.check(value) || !s.inContext(r, start) ||
			s.denied(r, start) {
			continue
		}
		s.add(start, end, r)
		return true
	}
	return false
}

const maxWord = 40

// lengths returns the lengths of the words that a rule finds, as listed in Shapes.
func (r *rule) lengths() []int {
	var list []int
	for _, sh := range r.shapes {
		list = append(list, sh.sizes[0])
	}
	return list
}

// ibanAt finds an IBAN that begins at text[start], in one piece or in groups.
func (s *scan) ibanAt(text []byte, start int) bool {
	if s.r.iban == nil || start+15 > len(text) || !isLetter(text[start]) || !isLetter(text[start+1]) ||
		!isDigit(text[start+2]) || !isDigit(text[start+3]) || glued(text, start) {
		return false
	}
	size := ibanSize(text[start], text[start+1])
	if size == 0 {
		return false
	}
	var buf [maxIBAN]byte
	end, exact := readIBAN(buf[:0], text, start, size)
	if !exact { // a valid checksum, but not the length of its country's IBANs
		end, exact = readIBAN(buf[:0], text, start, maxIBAN)
	}
	if !exact {
		return false
	}
	s.add(start, end, s.r.iban)
	s.until = max(s.until, end)
	return true
}

// readIBAN reads up to size letters and digits at text[at:], contiguous or in groups, and reports
// whether they are an IBAN.
func readIBAN(value, text []byte, at, size int) (end int, ok bool) {
	upper := true
	for at < len(text) && len(value) < size {
		b := text[at]
		if b == ' ' || b == '-' {
			if at+1 >= len(text) || !isUpper(text[at+1]) && !isDigit(text[at+1]) || len(value)%4 != 0 && size < maxIBAN {
				break
			}
		} else if !isLetter(b) && !isDigit(b) {
			break
		} else {
			upper = upper && !isLower(b)
			value = append(value, b&^lowerBit(b))
		}
		at++
	}
	if at < len(text) && isWord(text[at]) || len(value) < 15 || size < maxIBAN && len(value) < size || size == maxIBAN && !upper {
		return at, false
	}
	return at, mod97(value)
}

// lowerBit returns the bit that turns a letter into a capital when cleared, or 0 if the byte isn't
// a letter.
func lowerBit(b byte) byte {
	if isLower(b) {
		return 0x20
	}
	return 0
}
