/* ckptd.h is an SDK for ckptd plugins in C, for a single source file and without a C library.
 * docs/plugins.md in ckptd is the contract it implements. A plugin exports its hooks:
 *
 *	#include "ckptd.h"
 *
 *	CKPTD_EXPORT(on_pre_save)
 *	int32_t on_pre_save(void) {
 *		ckptd_bytes in = ckptd_payload();
 *		if (in.len < 100)
 *			return CKPTD_UNCHANGED;
 *		return ckptd_output(in.data, 100);
 *	}
 *
 * The host resets the memory after every call, so nothing is ever freed and nothing outlives a call. */
#ifndef CKPTD_H
#define CKPTD_H

#include <stddef.h>
#include <stdint.h>

/* Return codes of a hook. 16 and above are the plugin's own errors. */
enum { CKPTD_OUTPUT = 0, CKPTD_UNCHANGED = 1, CKPTD_REJECTED = 2, CKPTD_FAILED = 16 };

enum { CKPTD_DEBUG, CKPTD_INFO, CKPTD_WARN, CKPTD_ERROR };

#define CKPTD_EXPORT(name) __attribute__((export_name(#name)))
#define CKPTD_IMPORT(name) __attribute__((import_module("ckptd_v1"), import_name(#name)))

CKPTD_IMPORT(input_len) int64_t ckptd_input_len(int32_t slot);
CKPTD_IMPORT(input_read) int32_t ckptd_input_read(int32_t slot, int64_t off, void *to, size_t len);
CKPTD_IMPORT(output_write) int32_t ckptd_output_write(const void *from, size_t len);
CKPTD_IMPORT(error_set) void ckptd_error_set(int32_t code, const void *text, size_t len);
CKPTD_IMPORT(log) void ckptd_log_write(int32_t level, const void *text, size_t len);
CKPTD_IMPORT(finding) void ckptd_finding_add(const void *rule, size_t rule_len, const void *path, size_t path_len, int32_t count);
/* redact_builtin returns the length of its output, or -n if it needs n bytes; n is at least 16. */
CKPTD_IMPORT(redact_builtin) int32_t ckptd_redact_builtin(const void *set, size_t set_len, const void *from, size_t len, void *to, size_t cap);
CKPTD_IMPORT(pseudonym) int32_t ckptd_pseudonym(int32_t kind, const void *text, size_t len, uint8_t to[32]);
CKPTD_IMPORT(blob_put) int32_t ckptd_blob_put(const void *from, size_t len, uint8_t id[32]);

CKPTD_EXPORT(ckptd_abi_v1) int32_t ckptd_abi_v1(void) { return 1; }

/* With -mbulk-memory these are one instruction each. The compiler calls them for copies of its own. */
__attribute__((weak)) void *memcpy(void *to, const void *from, size_t len) { return __builtin_memcpy(to, from, len); }
__attribute__((weak)) void *memmove(void *to, const void *from, size_t len) { return __builtin_memmove(to, from, len); }
__attribute__((weak)) void *memset(void *to, int byte, size_t len) { return __builtin_memset(to, byte, len); }

typedef struct {
	uint8_t *data;
	size_t len;
} ckptd_bytes;

/* ckptd_alloc returns memory that is valid until the call ends. It traps if memory runs out. */
static inline void *ckptd_alloc(size_t len) {
	extern uint8_t __heap_base;
	static uintptr_t next;
	const uintptr_t page = 65536;
	if (next == 0)
		next = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
	uintptr_t have = __builtin_wasm_memory_size(0) * page - next;
	if (len > have && (len > SIZE_MAX - page || __builtin_wasm_memory_grow(0, (len - have + page - 1) / page) == SIZE_MAX))
		__builtin_trap();
	void *p = (void *)next;
	next += (len + 15) & ~(uintptr_t)15;
	return p;
}

static inline ckptd_bytes ckptd_input(int32_t slot) {
	int64_t len = ckptd_input_len(slot);
	ckptd_bytes b = {0, 0};
	if (len <= 0)
		return b;
	b.len = (size_t)len;
	b.data = ckptd_alloc(b.len);
	if (ckptd_input_read(slot, 0, b.data, b.len) != (int32_t)b.len)
		__builtin_trap();
	return b;
}

/* The payload; its description, a JSON object; and the plugin's configuration, a JSON object or empty. */
static inline ckptd_bytes ckptd_payload(void) { return ckptd_input(0); }
static inline ckptd_bytes ckptd_meta(void) { return ckptd_input(1); }
static inline ckptd_bytes ckptd_config(void) { return ckptd_input(2); }

static inline size_t ckptd_strlen(const char *s) {
	size_t n = 0;
	while (s[n])
		n++;
	return n;
}

/* ckptd_fail sets the reason for a failure and returns code. The reason must not quote the payload. */
static inline int32_t ckptd_fail(int32_t code, const char *reason) {
	ckptd_error_set(code, reason, ckptd_strlen(reason));
	return code;
}

static inline int32_t ckptd_reject(const char *reason) { return ckptd_fail(CKPTD_REJECTED, reason); }

/* ckptd_output appends data to the output and returns the hook's return code. */
static inline int32_t ckptd_output(const void *data, size_t len) {
	return ckptd_output_write(data, len) < 0 ? ckptd_fail(CKPTD_FAILED, "the output is over the limit") : CKPTD_OUTPUT;
}

static inline void ckptd_log(int32_t level, const char *line) { ckptd_log_write(level, line, ckptd_strlen(line)); }

/* ckptd_finding reports that a rule matched count times at a path, a JSON pointer or "". Never quote
 * the match itself. */
static inline void ckptd_finding(const char *rule, const char *path, int32_t count) {
	ckptd_finding_add(rule, ckptd_strlen(rule), path, ckptd_strlen(path), count);
}

#endif
