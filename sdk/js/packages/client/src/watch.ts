// Watches, which resume after a broken connection.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Caller } from "./calls.js";
import { ThreadService, type WatchRequestSchema } from "./gen/ckptd/v1/thread_service_pb.js";
import { Seen } from "./seen.js";
import { unpackEvent, type Event } from "./types.js";

/** Options of a watch. */
export interface WatchOptions {
  /** Start after this event: Event.cursor. */
  readonly cursor?: string | undefined;
  /**
   * Begin with an event that has no id, and means that no later checkpoint will be missed.
   */
  readonly began?: boolean | undefined;
}

/** Yields the events of a watch. Only an error ends it. */
export async function* watch(
  caller: Caller,
  request: MessageInitShape<typeof WatchRequestSchema>,
  options: WatchOptions,
): AsyncGenerator<Event, void, undefined> {
  const { heartbeat } = caller.options;
  let ask = { ...request, heartbeat: durationFromMs(heartbeat), cursor: options.cursor ?? "" };
  let began = options.began ?? false;
  const seen = new Seen();
  const stream = caller.resumed(ThreadService.method.watch, () => ask, 3 * heartbeat);
  try {
    for (let m = await stream.next(); m !== undefined; m = await stream.next()) {
      stream.progress = true;
      if (m.cursor !== "") {
        ask = { ...ask, cursor: m.cursor };
        delete ask.since;
      }
      const event = unpackEvent(m.event, ask.cursor);
      if (m.event !== undefined) {
        if (seen.first(event)) yield event;
      } else if (began) {
        began = false;
        yield event;
      }
    }
  } finally {
    stream.close();
  }
}
