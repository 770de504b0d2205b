// Drops events that a resumed watch repeats.

import type { Event } from "./types.js";

/** A generous bound on the age of repeated events, in milliseconds. */
const REPEATABLE = 60_000;

/**
 * Remembers the newest recent event of each lineage. A resumed watch can repeat events from the
 * milliseconds before its cursor.
 */
export class Seen {
  private last = new Map<string, { seq: number; time: number }>();
  /** Size that triggers dropping old ones. */
  private limit: number;

  constructor(private readonly room = 1024) {
    this.limit = room;
  }

  /** Reports whether an event is new, and remembers it. */
  first(e: Event): boolean {
    const { tenant, user, thread, namespace } = e.ref;
    const of = JSON.stringify([tenant, user, thread, namespace, e.generation]);
    const had = this.last.get(of);
    if (had !== undefined && e.seq <= had.seq) return false;
    this.last.set(of, { seq: e.seq, time: e.time.getTime() });
    if (this.last.size > this.limit) {
      const old = e.time.getTime() - REPEATABLE;
      this.last = new Map([...this.last].filter(([, v]) => v.time >= old));
      this.limit = Math.max(this.room, 2 * this.last.size);
    }
    return true;
  }
}
