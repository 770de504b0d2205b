// Counts the requests of this process.

import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { ClientRequest } from "node:http";

const CHANNEL = "http.client.request.start";

/** The methods that were called, in order, and the bytes of their requests. */
export interface Counted {
  readonly calls: string[];
  bytes: number;
}

/** Runs a function, and returns the requests that were made meanwhile. */
export async function counted(run: () => Promise<unknown>): Promise<Counted> {
  const found: Counted = { calls: [], bytes: 0 };
  const seen = (message: unknown): void => {
    const { request } = message as { request: ClientRequest & { _header: string } };
    found.calls.push(request.path.replace("/ckptd.v1.", ""));
    found.bytes += Number(/content-length: (\d+)/i.exec(request._header)?.[1] ?? 0);
  };
  subscribe(CHANNEL, seen);
  try {
    await run();
  } finally {
    unsubscribe(CHANNEL, seen);
  }
  return found;
}
