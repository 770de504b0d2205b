// An SDK for ckptd plugins in AssemblyScript. docs/plugins.md in ckptd is the contract it implements.
// A plugin exports ckptd_abi_v1 and its hooks:
//
//   export { ckptd_abi_v1 } from "./ckptd";
//   import { output, payload, UNCHANGED } from "./ckptd";
//
//   export function on_pre_save(): i32 {
//     const data = payload();
//     return data.length < 100 ? UNCHANGED : output(data, 100);
//   }
//
// The host resets the memory after every call, so nothing is ever freed and nothing outlives a call.

/** Return codes of a hook. 16 and above are the plugin's own errors. */
export const OUTPUT: i32 = 0;
export const UNCHANGED: i32 = 1;
export const REJECTED: i32 = 2;
export const FAILED: i32 = 16;

export const enum Level { Debug, Info, Warn, Error }

@external("ckptd_v1", "input_len") declare function hostInputLen(slot: i32): i64;
@external("ckptd_v1", "input_read") declare function hostInputRead(slot: i32, off: i64, to: usize, len: i32): i32;
@external("ckptd_v1", "output_write") declare function hostOutputWrite(from: usize, len: i32): i32;
@external("ckptd_v1", "error_set") declare function hostErrorSet(code: i32, text: usize, len: i32): void;
@external("ckptd_v1", "log") declare function hostLog(level: i32, text: usize, len: i32): void;
@external("ckptd_v1", "finding") declare function hostFinding(rule: usize, ruleLen: i32, path: usize, pathLen: i32, count: i32): void;
@external("ckptd_v1", "redact_builtin") declare function hostRedact(set: usize, setLen: i32, from: usize, len: i32, to: usize, cap: i32): i32;
@external("ckptd_v1", "pseudonym") declare function hostPseudonym(kind: i32, text: usize, len: i32, to: usize): i32;
@external("ckptd_v1", "blob_put") declare function hostBlobPut(from: usize, len: i32, id: usize): i32;

export function ckptd_abi_v1(): i32 {
  return 1;
}

/** Bytes that hooks read and write. */
export type Bytes = StaticArray<u8>;

/** The payload; its description, a JSON object; and the plugin's configuration, a JSON object or empty. */
export function payload(): Bytes { return read(0); }
export function meta(): Bytes { return read(1); }
export function config(): Bytes { return read(2); }

function read(slot: i32): Bytes {
  const len = i32(max<i64>(hostInputLen(slot), 0));
  const data = new StaticArray<u8>(len);
  if (hostInputRead(slot, 0, changetype<usize>(data), len) < len) unreachable();
  return data;
}

/** Sets the output to the first len bytes of data (default: all) and returns the hook's return code. */
export function output(data: Bytes, len: i32 = data.length): i32 {
  return hostOutputWrite(changetype<usize>(data), len) < 0 ? fail(FAILED, "the output is over the limit") : OUTPUT;
}

/** Appends bytes of data to the output. The hook must then return OUTPUT. */
export function write(data: Bytes, from: i32, to: i32): void {
  hostOutputWrite(changetype<usize>(data) + from, to - from);
}

/** Sets the reason for a failure and returns code. The reason must not quote the payload. */
export function fail(code: i32, reason: string): i32 {
  const text = bytes(reason);
  hostErrorSet(code, changetype<usize>(text), text.length);
  return code;
}

export function reject(reason: string): i32 { return fail(REJECTED, reason); }

/** Writes a line to the host's log. It must not quote the payload. */
export function log(level: Level, line: string): void {
  const text = bytes(line);
  hostLog(level, changetype<usize>(text), text.length);
}

/** Reports that a rule matched count times at a path, a JSON pointer or "". Never quote the match itself. */
export function finding(rule: string, path: string, count: i32): void {
  const r = bytes(rule), p = bytes(path);
  hostFinding(changetype<usize>(r), r.length, changetype<usize>(p), p.length, count);
}

/** Passes JSON or text through the host's redactor, with the rules of a set ("" for the default set). Returns null
 * without the capability redact_builtin. */
export function redactBuiltin(set: string, data: Bytes): Bytes | null {
  const name = bytes(set);
  let cap = data.length + data.length / 4 + 256;
  while (true) {
    const out = new StaticArray<u8>(cap);
    const n = hostRedact(changetype<usize>(name), name.length, changetype<usize>(data), data.length, changetype<usize>(out), cap);
    if (n >= 0) return out.slice<Bytes>(0, n);
    if (n > -16) return null;
    cap = -n;
  }
}

/** Returns a pseudonym for text: 32 bytes, the same for the same text, kind and user. It depends on one of the user's
 * keys and cannot be linked to the text once that key is destroyed. Returns null without the capability pseudonym. */
export function pseudonym(kind: i32, text: Bytes): Bytes | null {
  const to = new StaticArray<u8>(32);
  return hostPseudonym(kind, changetype<usize>(text), text.length, changetype<usize>(to)) < 0 ? null : to;
}

/** Stores data as a blob of the user, together with the item, and returns its id. Returns null without the capability
 * blob_put. */
export function putBlob(data: Bytes): Bytes | null {
  const id = new StaticArray<u8>(32);
  return hostBlobPut(changetype<usize>(data), data.length, changetype<usize>(id)) < 0 ? null : id;
}

/** Encodes text, which is UTF-16, as UTF-8. */
export function bytes(text: string): Bytes {
  const to = new StaticArray<u8>(String.UTF8.byteLength(text));
  String.UTF8.encodeUnsafe(changetype<usize>(text), text.length, changetype<usize>(to));
  return to;
}
