// Calls every host function; the first byte of the payload selects which.
import {
  Bytes, bytes, config, fail, FAILED, finding, Level, log, meta, output, payload, pseudonym, putBlob, redactBuiltin, reject, UNCHANGED,
} from "../../../scaffold/files/assemblyscript/assembly/ckptd";
export { ckptd_abi_v1 } from "../../../scaffold/files/assemblyscript/assembly/ckptd";

let configuration: Bytes = new StaticArray<u8>(0);

export function ckptd_configure(): i32 {
  const bad = bytes('{"bad":true}');
  configuration = config();
  if (configuration.length == bad.length &&
    memory.compare(changetype<usize>(configuration), changetype<usize>(bad), bad.length) == 0) return fail(20, "bad");
  return 0;
}

export function on_pre_save(): i32 {
  const data = payload();
  switch (data[0]) {
    case 0x6d: return output(meta()); // m
    case 0x63: return output(configuration); // c
    case 0x78: return reject("no"); // x
    case 0x66: return fail(20, "broken"); // f
    case 0x6c: // l
      log(Level.Warn, "hello");
      finding("rule", "/path", 3);
      return UNCHANGED;
    case 0x72: return granted(redactBuiltin("personal", data)); // r
    case 0x70: return granted(pseudonym(7, data)); // p
    case 0x62: return granted(putBlob(data)); // b
  }
  return UNCHANGED;
}

function granted(out: Bytes | null): i32 {
  return out == null ? fail(FAILED, "the host does not grant this: look at the capabilities in plugin.toml") : output(out);
}
