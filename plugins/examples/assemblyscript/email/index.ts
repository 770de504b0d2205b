// A plugin that keeps email addresses out of stored data: bob@example.com becomes [EMAIL]. It scans
// the bytes of JSON or text once and needs no parser: the rest stays byte for byte the same.

// ckptd plugin new writes ckptd.ts next to the source.
import { Bytes, bytes, finding, OUTPUT, payload, UNCHANGED, write } from "../../../scaffold/files/assemblyscript/assembly/ckptd";
export { ckptd_abi_v1 } from "../../../scaffold/files/assemblyscript/assembly/ckptd";

export function on_pre_save(): i32 {
  const b = payload(), mask = bytes("[EMAIL]");
  let copied = 0, found = 0;
  for (let i = 0; i < b.length;) {
    const byte = unchecked(b[i]);
    if (byte != 0x40 && byte != 0x5c) { // most text is neither @ nor a backslash
      i++;
      continue;
    }
    const at = i, c = next(b, at);
    i = after;
    if (c != 0x40) continue;
    const start = begin(b, copied, at), stop = domain(b, i);
    if (start == at || stop == 0) continue;
    write(b, copied, start);
    write(mask, 0, mask.length);
    copied = i = stop;
    found++;
  }
  if (found == 0) return UNCHANGED;
  finding("email", "", found);
  write(b, copied, b.length);
  return OUTPUT;
}

/** Returns the start of the local part that ends at i, not before low. */
function begin(b: Bytes, low: i32, i: i32): i32 {
  while (true) {
    while (i > low && isLocal(unchecked(b[i - 1]))) i--;
    if (i == low || unchecked(b[i - 1]) != 0x5c) return i;
    while (i > low && unchecked(b[i - 1]) == 0x5c) i--; // the run begins inside an escape sequence
    if (!isLocal(next(b, i))) return after;
  }
}

/** Returns the end of the domain name that begins at i, or 0 if there is none: labels separated by
 * dots, the last of which has two letters or more. */
function domain(b: Bytes, i: i32): i32 {
  let stop = 0, labels = 0;
  while (true) {
    let size = 0, letters = true;
    let c = next(b, i);
    for (; isLetter(c) || isDigit(c) || c == 0x2d; c = next(b, i)) {
      size++;
      letters = letters && isLetter(c);
      i = after;
    }
    if (labels++ > 0 && size >= 2 && letters) stop = i;
    if (size == 0 || c != 0x2e) return stop;
    i = after;
  }
}

/** Index of the character after the one that next returned. */
let after: i32 = 0;

/** Returns the character at i, or 0 for one that cannot be in an address. \u0040 is an @. Any number
 * of backslashes counts as one escape, because JSON may be nested in a string of JSON. */
function next(b: Bytes, i: i32): i32 {
  after = i;
  if (i >= b.length) return 0;
  after = i + 1;
  const c: i32 = unchecked(b[i]);
  if (c != 0x5c) return c;
  while (i < b.length && unchecked(b[i]) == 0x5c) i++;
  after = i;
  if (i >= b.length) return 0;
  switch (unchecked(b[i])) {
    case 0x22: case 0x2f: case 0x62: case 0x66: case 0x6e: case 0x72: case 0x74: // " / b f n r t
      after = i + 1;
      return 0;
    case 0x75: // u
      if (i + 5 > b.length) return 0;
      let code = 0;
      for (let k = 1; k < 5; k++) {
        const digit = hex(unchecked(b[i + k]));
        if (digit < 0) return 0;
        code = code << 4 | digit;
      }
      after = i + 5;
      return code < 0x80 ? code : 0;
  }
  return 0;
}

function isLetter(c: i32): bool { return u32((c | 0x20) - 0x61) < 26; }
function isDigit(c: i32): bool { return u32(c - 0x30) < 10; }

/** The characters allowed in a local part: one bit each, in words of 64. */
const local: StaticArray<u64> = [0x3ff682000000000, 0x7fffffe87fffffe, 0, 0];

function isLocal(c: i32): bool { return (unchecked(local[c >> 6]) >> (c & 63) & 1) != 0; }

function hex(c: i32): i32 {
  if (isDigit(c)) return c - 0x30;
  c |= 0x20;
  return c >= 0x61 && c <= 0x66 ? c - 0x61 + 10 : -1;
}
