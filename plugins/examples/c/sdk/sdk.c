/* Calls every host function; the first byte of the payload selects which. */
#include "ckptd.h"

static ckptd_bytes config;

CKPTD_EXPORT(ckptd_configure)
int32_t ckptd_configure(void) {
	static const char bad[] = "{\"bad\":true}";
	config = ckptd_config();
	size_t i = 0;
	while (i < config.len && i < sizeof bad - 1 && config.data[i] == (uint8_t)bad[i])
		i++;
	return i == sizeof bad - 1 ? ckptd_fail(20, "bad") : 0;
}

static const char denied[] = "the host does not grant this: look at the capabilities in plugin.toml";

CKPTD_EXPORT(on_pre_save)
int32_t on_pre_save(void) {
	ckptd_bytes in = ckptd_payload(), meta = ckptd_meta();
	uint8_t id[32], *out;
	int32_t n;
	switch (in.data[0]) {
	case 'm':
		return ckptd_output(meta.data, meta.len);
	case 'c':
		return ckptd_output(config.data, config.len);
	case 'x':
		return ckptd_reject("no");
	case 'f':
		return ckptd_fail(20, "broken");
	case 'l':
		ckptd_log(CKPTD_WARN, "hello");
		ckptd_finding("rule", "/path", 3);
		break;
	case 'r':
		out = ckptd_alloc(16);
		n = ckptd_redact_builtin("personal", 8, in.data, in.len, out, 16);
		if (n <= -16) {
			out = ckptd_alloc(-n);
			n = ckptd_redact_builtin("personal", 8, in.data, in.len, out, -n);
		}
		return n < 0 ? ckptd_fail(CKPTD_FAILED, denied) : ckptd_output(out, n);
	case 'p':
		return ckptd_pseudonym(7, in.data, in.len, id) < 0 ? ckptd_fail(CKPTD_FAILED, denied) : ckptd_output(id, 32);
	case 'b':
		return ckptd_blob_put(in.data, in.len, id) < 0 ? ckptd_fail(CKPTD_FAILED, denied) : ckptd_output(id, 32);
	}
	return CKPTD_UNCHANGED;
}
