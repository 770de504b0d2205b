// Finds the differences between two contents of a channel, without a loop over bytes.
//
// Successive states of an agent are mostly equal: a message is appended, a counter or a timestamp
// changes. In MessagePack and Protobuf the length in front of a list changes with each append, so a
// single splice between the common prefix and suffix would resend the whole list.

/** Replaces the bytes from start up to end. */
export interface Replace {
  readonly start: number;
  readonly end: number;
  readonly data: Uint8Array;
}

/** The most edits in a change; the last one then covers the rest. */
export const MAX_EDITS = 64;

// How to find the place after a difference where the contents match again: the length of the
// anchor, its distance, and the window to search in the other content. Small windows come first,
// since most changes are small; long anchors come before short ones, since they seldom match by
// chance.
const NEAR = 8 << 10;
const FAR = Number.MAX_SAFE_INTEGER;
const ANCHORS: readonly (readonly [number, number, number])[] = [
  [96, 0, NEAR],
  [96, 64, NEAR],
  [96, 512, NEAR],
  [24, 0, NEAR],
  [24, 16, NEAR],
  [24, 128, NEAR],
  [96, 0, FAR],
  [96, 64, FAR],
  [96, 4096, FAR],
  [24, 0, FAR],
];

/** Returns edits that turn was into now. */
export function edits(was: Uint8Array, now: Uint8Array): Replace[] {
  const a = view(was);
  const b = view(now);
  const both = Math.min(a.length, b.length);
  const start = prefix(a, 0, b, 0, both);
  if (start === a.length && start === b.length) return [];
  const end = suffix(a, a.length, b, b.length, both - start);
  return new Search(a, a.length - end, b, b.length - end).run(start);
}

/** Returns was with the edits applied. */
export function apply(was: Uint8Array, replace: readonly Replace[]): Uint8Array {
  const parts: Uint8Array[] = [];
  let at = 0;
  for (const r of replace) {
    parts.push(was.subarray(at, r.start), r.data);
    at = r.end;
  }
  parts.push(was.subarray(at));
  return new Uint8Array(Buffer.concat(parts));
}

function view(data: Uint8Array): Buffer {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength);
}

function plain(data: Buffer): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

class Search {
  // Bytes to search before giving up. For large contents with nothing in common, the search must
  // not take longer than sending them; for small ones it is quick in any case.
  private budget: number;

  constructor(
    private readonly was: Buffer,
    private readonly wasEnd: number,
    private readonly now: Buffer,
    private readonly nowEnd: number,
  ) {
    this.budget = 2 * (wasEnd + nowEnd) + (256 << 10);
  }

  run(start: number): Replace[] {
    const found: Replace[] = [];
    let i = start;
    let j = start;
    while (i < this.wasEnd && j < this.nowEnd && found.length < MAX_EDITS - 1) {
      const met = this.meet(i, j);
      if (met === undefined) break;
      const back = suffix(this.was, met[0], this.now, met[1], Math.min(met[0] - i, met[1] - j));
      const i2 = met[0] - back;
      const j2 = met[1] - back;
      found.push({ start: i, end: i2, data: plain(this.now.subarray(j, j2)) });
      const most = Math.min(this.wasEnd - i2, this.nowEnd - j2);
      const same = prefix(this.was, i2, this.now, j2, most);
      i = i2 + same;
      j = j2 + same;
    }
    if (i < this.wasEnd || j < this.nowEnd) {
      found.push({ start: i, end: this.wasEnd, data: plain(this.now.subarray(j, this.nowEnd)) });
    }
    return found;
  }

  /** Returns where the contents match again after i and j. */
  private meet(i: number, j: number): [number, number] | undefined {
    for (const [size, ahead, within] of ANCHORS) {
      let best: [number, number] | undefined;
      const a = i + ahead;
      const b = j + ahead;
      if (a + size <= this.wasEnd) {
        const anchor = this.was.subarray(a, a + size);
        const at = this.find(this.now, anchor, j, Math.min(this.nowEnd, a - i + j + within));
        if (at >= 0) best = [a, at];
      }
      if (b + size <= this.nowEnd) {
        const anchor = this.now.subarray(b, b + size);
        const at = this.find(this.was, anchor, i, Math.min(this.wasEnd, b - j + i + within));
        if (at >= 0 && (best === undefined || b < best[1])) best = [at, b];
      }
      if (best !== undefined) return best;
    }
    return undefined;
  }

  private find(text: Buffer, anchor: Buffer, start: number, end: number): number {
    if (this.budget <= 0) return -1;
    const at = text.subarray(start, end).indexOf(anchor);
    this.budget -= at < 0 ? end - start : at;
    return at < 0 ? -1 : start + at;
  }
}

/** Returns the length of the common prefix of a from i and b from j, at most most. */
function prefix(a: Buffer, i: number, b: Buffer, j: number, most: number): number {
  let same = 0;
  let step = 64;
  while (same < most) {
    step = Math.min(step, most - same);
    if (a.compare(b, j + same, j + same + step, i + same, i + same + step) === 0) {
      same += step;
      step *= 4;
    } else if (step === 1) {
      break;
    } else {
      most = same + step - 1; // they differ within this step
      step = Math.max(1, step >> 1);
    }
  }
  return same;
}

/** Returns the length of the common suffix of a up to i and b up to j, at most most. */
function suffix(a: Buffer, i: number, b: Buffer, j: number, most: number): number {
  let same = 0;
  let step = 64;
  while (same < most) {
    step = Math.min(step, most - same);
    if (a.compare(b, j - same - step, j - same, i - same - step, i - same) === 0) {
      same += step;
      step *= 4;
    } else if (step === 1) {
      break;
    } else {
      most = same + step - 1;
      step = Math.max(1, step >> 1);
    }
  }
  return same;
}
