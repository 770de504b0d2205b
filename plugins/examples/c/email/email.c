/* A plugin that keeps email addresses out of stored data: bob@example.com becomes [EMAIL]. It scans
 * the bytes of JSON or text once and needs no parser: the rest stays byte for byte the same. */
#include <stdbool.h>

#include "ckptd.h"

static bool is_letter(int c) { return 'a' <= (c | 0x20) && (c | 0x20) <= 'z'; }
static bool is_digit(int c) { return '0' <= c && c <= '9'; }
static bool is_hex(int c) { return is_digit(c) || ('a' <= (c | 0x20) && (c | 0x20) <= 'f'); }
static int hex(int c) { return is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10; }

static bool is_local(int c) {
	return is_letter(c) || is_digit(c) || c == '.' || c == '_' || c == '%' || c == '+' || c == '-';
}

/* next returns the character at p, or 0 for one that cannot be in an address, and the start of the
 * next character. \u0040 is an @. Any number of backslashes counts as one escape, because JSON may be
 * nested in a string of JSON. */
static inline int next(const uint8_t *p, const uint8_t *end, const uint8_t **after) {
	*after = p;
	if (p == end)
		return 0;
	*after = p + 1;
	if (*p != '\\')
		return *p;
	while (p < end && *p == '\\')
		p++;
	*after = p;
	if (p == end)
		return 0;
	switch (*p) {
	case '"': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
		*after = p + 1;
		return 0;
	case 'u':
		if (end - p < 5 || !is_hex(p[1]) || !is_hex(p[2]) || !is_hex(p[3]) || !is_hex(p[4]))
			return 0;
		*after = p + 5;
		return p[1] == '0' && p[2] == '0' && p[3] < '8' ? hex(p[3]) << 4 | hex(p[4]) : 0;
	}
	return 0;
}

/* begin returns the start of the local part that ends at end, not before low. */
static const uint8_t *begin(const uint8_t *low, const uint8_t *end) {
	const uint8_t *p = end, *after;
	for (;;) {
		while (p > low && is_local(p[-1]))
			p--;
		if (p == low || p[-1] != '\\')
			return p;
		while (p > low && p[-1] == '\\') /* the run begins inside an escape sequence */
			p--;
		if (!is_local(next(p, end, &after)))
			return after;
	}
}

/* domain returns the end of the domain name that begins at p, or NULL if there is none: labels
 * separated by dots, the last of which has two letters or more. */
static const uint8_t *domain(const uint8_t *p, const uint8_t *end) {
	const uint8_t *stop = NULL, *after;
	for (int labels = 0;; labels++) {
		int c, size = 0;
		bool letters = true;
		while (c = next(p, end, &after), is_letter(c) || is_digit(c) || c == '-') {
			size++;
			letters = letters && is_letter(c);
			p = after;
		}
		if (labels > 0 && size >= 2 && letters)
			stop = p;
		if (size == 0 || c != '.')
			return stop;
		p = after;
	}
}

CKPTD_EXPORT(on_pre_save)
int32_t on_pre_save(void) {
	static const char mask[] = "[EMAIL]";
	ckptd_bytes in = ckptd_payload();
	const uint8_t *copied = in.data, *end = in.data + in.len;
	int32_t found = 0;
	for (const uint8_t *p = in.data; p < end;) {
		if (*p != '@' && *p != '\\') { /* most text is neither */
			p++;
			continue;
		}
		const uint8_t *at = p;
		if (next(at, end, &p) != '@')
			continue;
		const uint8_t *start = begin(copied, at), *stop = domain(p, end);
		if (start == at || !stop)
			continue;
		ckptd_output(copied, start - copied);
		ckptd_output(mask, sizeof mask - 1);
		copied = p = stop;
		found++;
	}
	if (!found)
		return CKPTD_UNCHANGED;
	ckptd_finding("email", "", found);
	return ckptd_output(copied, end - copied);
}
