/* A plugin that keeps email addresses out of what is stored: bob@example.com becomes [EMAIL]. It looks at the bytes of JSON
 * or text once and needs no parser: what is left stays as it was, byte for byte. */
#include <stdbool.h>

#include "ckptd.h"

static bool is_letter(int c) { return 'a' <= (c | 0x20) && (c | 0x20) <= 'z'; }
static bool is_digit(int c) { return '0' <= c && c <= '9'; }
static bool is_hex(int c) { return is_digit(c) || ('a' <= (c | 0x20) && (c | 0x20) <= 'f'); }
static int hex(int c) { return is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10; }

/* The characters of a local part. */
static const bool local[256] = {
	['0'] = 1, ['1'] = 1, ['2'] = 1, ['3'] = 1, ['4'] = 1, ['5'] = 1, ['6'] = 1, ['7'] = 1, ['8'] = 1, ['9'] = 1,
	['A'] = 1, ['B'] = 1, ['C'] = 1, ['D'] = 1, ['E'] = 1, ['F'] = 1, ['G'] = 1, ['H'] = 1, ['I'] = 1, ['J'] = 1, ['K'] = 1,
	['L'] = 1, ['M'] = 1, ['N'] = 1, ['O'] = 1, ['P'] = 1, ['Q'] = 1, ['R'] = 1, ['S'] = 1, ['T'] = 1, ['U'] = 1, ['V'] = 1,
	['W'] = 1, ['X'] = 1, ['Y'] = 1, ['Z'] = 1, ['a'] = 1, ['b'] = 1, ['c'] = 1, ['d'] = 1, ['e'] = 1, ['f'] = 1, ['g'] = 1,
	['h'] = 1, ['i'] = 1, ['j'] = 1, ['k'] = 1, ['l'] = 1, ['m'] = 1, ['n'] = 1, ['o'] = 1, ['p'] = 1, ['q'] = 1, ['r'] = 1,
	['s'] = 1, ['t'] = 1, ['u'] = 1, ['v'] = 1, ['w'] = 1, ['x'] = 1, ['y'] = 1, ['z'] = 1, ['.'] = 1, ['_'] = 1, ['%'] = 1,
	['+'] = 1, ['-'] = 1,
};

/* next returns the character at p, 0 for one that is in no address, and where the one after it begins. \u0040 is an @; any
 * number of backslashes is one escape, as JSON in a string of JSON has it. */
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

/* domain returns where the domain name ends that begins at p, NULL if there is none: labels with dots between them, the
 * last of which is two letters or more. */
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
	const uint8_t *start = in.data; /* where the run of characters of a local part began that ends at p */
	int32_t found = 0;
	for (const uint8_t *p = in.data, *after; p < end; p = after) {
		after = p + 1;
		if (local[*p])
			continue;
		int c = next(p, end, &after);
		if (local[c])
			continue;
		const uint8_t *stop = c == '@' && start < p ? domain(after, end) : NULL;
		if (stop) {
			ckptd_output(copied, start - copied);
			ckptd_output(mask, sizeof mask - 1);
			copied = after = stop;
			found++;
		}
		start = after;
	}
	if (!found)
		return CKPTD_UNCHANGED;
	ckptd_finding("email", "", found);
	return ckptd_output(copied, end - copied);
}
