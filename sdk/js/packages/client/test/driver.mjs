// Plays the scripts of internal/conformance with the client.
//
// Run as `node driver.mjs DIST`, where DIST is the folder of a built client: tasks come on standard
// input, a line of JSON each, and results go to standard output.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { fromJson } from "@bufbuild/protobuf";

const dist = pathToFileURL(`${process.argv[2]}/`);
const { CkptdError, Client, Put } = await import(new URL("index.js", dist).href);
const v1 = await import(new URL("v1.js", dist).href);

class Driver {
  sessions = new Map();

  constructor(task) {
    this.client = new Client(task.address, {
      attempts: task.client?.attempts || 4,
      serverIds: task.client?.noIds ?? false,
      backoff: 1,
      maxBackoff: 1,
    });
  }

  async play(call) {
    const ids = [];
    try {
      await this.make(call, ids);
    } catch (e) {
      if (!(e instanceof CkptdError)) throw e;
      console.error(`  ${e.name}: ${e.message}`);
      return { ids, reason: e.reason || "another" };
    }
    return { ids };
  }

  /** Makes a call, and appends the ids of the checkpoints or events that it gives. */
  async make(call, ids) {
    const read = (schema) => fromJson(schema, call.request);
    switch (call.method) {
      case "CheckpointService/Save": {
        const m = read(v1.SaveRequestSchema);
        ids.push((await this.saver(call, m.ref).save(draftOf(m.draft))).id);
        break;
      }
      case "CheckpointService/SaveBatch": {
        const { saves } = read(v1.SaveBatchRequestSchema);
        const made = saves.map((s) => [this.thread(s.ref), draftOf(s.draft)]);
        for (const r of await this.client.saveBatch(made)) {
          if (r instanceof CkptdError) throw r;
          ids.push(r.id);
        }
        break;
      }
      case "CheckpointService/Load": {
        const m = read(v1.LoadRequestSchema);
        ids.push((await this.thread(m.ref).load(m.which)).id);
        break;
      }
      case "CheckpointService/List":
        for await (const cp of this.thread(read(v1.ListRequestSchema).ref).history()) ids.push(cp.id);
        break;
      case "ThreadService/Delete":
        await this.thread(read(v1.DeleteRequestSchema).ref).delete();
        break;
      case "ThreadService/Watch": {
        const m = read(v1.WatchRequestSchema);
        for await (const e of this.client.user(m.user, m.tenant).watch({ cursor: m.cursor })) {
          ids.push(e.id);
          if (ids.length === call.take) break;
        }
        break;
      }
      default:
        throw new CkptdError(`the driver does not know ${call.method}`);
    }
  }

  thread(ref) {
    return this.client.thread(ref.thread, { tenant: ref.tenant, user: ref.user });
  }

  saver(call, ref) {
    if (!call.session) return this.thread(ref);
    const session = this.sessions.get(ref.thread) ?? this.thread(ref).session();
    this.sessions.set(ref.thread, session);
    return session;
  }
}

/** Returns a draft of a script, which has whole channels. */
function draftOf(m) {
  const channels = m.channels.map((c) => [c.name, new Put(c.content.value, c.type || "bytes")]);
  const head = m.expectHead === undefined ? {} : { expectHead: Number(m.expectHead) };
  const generation = Number(m.generation);
  return { channels: Object.fromEntries(channels), id: m.id, generation, ...head };
}

for await (const line of createInterface({ input: process.stdin })) {
  const task = JSON.parse(line);
  console.error(task.name);
  const driver = new Driver(task);
  const results = [];
  for (const call of task.calls) results.push(await driver.play(call));
  driver.client.close();
  process.stdout.write(`${JSON.stringify(results)}\n`);
}
