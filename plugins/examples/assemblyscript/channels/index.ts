// A step of a migration: from version 2 on, the channel msgs is called messages. It can also go back.

// ckptd plugin new writes ckptd.ts next to the source.
import { Bytes, bytes, fail, FAILED, OUTPUT, payload, UNCHANGED, write } from "../../../scaffold/files/assemblyscript/assembly/ckptd";
export { ckptd_abi_v1 } from "../../../scaffold/files/assemblyscript/assembly/ckptd";

/** Gets a whole state: {"channels": {NAME: VALUE, …}, "types": {NAME: TYPE, …}, …}. */
export function on_migrate(from: i64, to: i64): i32 {
  if (from == 1 && to == 2) return rename(payload(), "msgs", "messages");
  if (from == 2 && to == 1) return rename(payload(), "messages", "msgs");
  return fail(FAILED, "this step is between the versions 1 and 2");
}

/** Renames a channel in place and leaves every other byte unchanged. */
function rename(b: Bytes, oldName: string, newName: string): i32 {
  const old = quoted(oldName), name = quoted(newName), channels = quoted("channels"), types = quoted("types");
  // Keys at depth 2 in one of the two members are channel names.
  let depth = 0, inside = false, key = false, copied = 0;
  for (let i = 0; i < b.length; i++) {
    const c = unchecked(b[i]);
    if (c == 0x22) { // "
      const end = after(b, i);
      if (key && depth == 1) inside = equal(b, i, end, channels) || equal(b, i, end, types);
      if (key && depth == 2 && inside) {
        if (equal(b, i, end, name)) return fail(FAILED + 1, "there is a channel " + newName + " already");
        if (equal(b, i, end, old)) {
          write(b, copied, i);
          write(name, 0, name.length);
          copied = end;
        }
      }
      key = false;
      i = end - 1;
    } else if (c == 0x7b) { // {
      depth++;
      key = true;
    } else if (c == 0x5b) { // [
      depth++;
      key = false;
    } else if (c == 0x7d || c == 0x5d) { // } ]
      depth--;
    } else if (c == 0x2c) { // , begins a key only in the objects of depth 1 and 2, which hold no arrays of their own depth
      key = depth == 1 || depth == 2;
    }
  }
  if (copied == 0) return UNCHANGED;
  write(b, copied, b.length);
  return OUTPUT;
}

function quoted(name: string): Bytes { return bytes('"' + name + '"'); }

/** Returns the end of the string that begins at i. */
function after(b: Bytes, i: i32): i32 {
  for (i++; i < b.length; i++) {
    const c = unchecked(b[i]);
    if (c == 0x5c) i++; // a backslash
    else if (c == 0x22) return i + 1;
  }
  return b.length;
}

function equal(b: Bytes, from: i32, to: i32, text: Bytes): bool {
  return to - from == text.length && memory.compare(changetype<usize>(b) + from, changetype<usize>(text), text.length) == 0;
}
