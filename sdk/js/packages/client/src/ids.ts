// Ids of drafts.

import { randomBytes } from "node:crypto";

/**
 * Makes UUIDs of version 7, each greater than all before it. 48 bits are milliseconds, 12 bits the
 * fraction of one, and 62 bits random.
 */
export class IdClock {
  private last = 0n;

  /** Returns an id that is greater than all before it. */
  next(now = Date.now()): string {
    const ms = Math.floor(now);
    let at = (BigInt(ms) << 12n) | BigInt(Math.floor((now - ms) * 4096));
    if (at <= this.last) at = this.last + 1n;
    this.last = at;
    const low = randomBytes(8);
    low[0] = ((low[0] as number) & 0x3f) | 0x80;
    const time = (at >> 12n).toString(16).padStart(12, "0");
    const fraction = (at & 0xfffn).toString(16).padStart(3, "0");
    const random = low.toString("hex");
    return `${time.slice(0, 8)}-${time.slice(8)}-7${fraction}-${random.slice(0, 4)}-${random.slice(4)}`;
  }
}
