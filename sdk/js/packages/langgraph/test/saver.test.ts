// The properties of the saver that LangGraph's validation suite does not test.

import type { RunnableConfig } from "@langchain/core/runnables";
import {
  DeltaSnapshot,
  emptyCheckpoint,
  uuid6,
  type Checkpoint,
  type CheckpointMetadata,
  type DeltaChannelHistory,
} from "@langchain/langgraph-checkpoint";
import { BODY, CkptdSaver, type SaverOptions } from "@ckptd/langgraph";
import {
  Client,
  ConflictError,
  GenerationError,
  InvalidError,
  TooLargeError,
  UnauthenticatedError,
  UnreachableError,
} from "@ckptd/client";
import { counted } from "../../../test/count.js";
import { serve, type Daemon } from "../../../test/programs.js";

let daemon: Daemon;
let client: Client;
let threads = 0;

beforeAll(async () => {
  daemon = await serve({ flags: ["--max-message", "4MiB"] });
  client = new Client(daemon.socket);
});
afterAll(async () => {
  client.close();
  await daemon.stop();
});

const META: CheckpointMetadata = { source: "loop", step: 1, parents: {} };

function saverOf(options: SaverOptions = {}): CkptdSaver {
  return new CkptdSaver(daemon.socket, options);
}

function newThread(): { configurable: Record<string, string> } {
  return { configurable: { thread_id: `thread-${++threads}`, checkpoint_ns: "" } };
}

function checkpointOf(
  values: Record<string, unknown>,
  versions: Record<string, number> = Object.fromEntries(Object.keys(values).map((k) => [k, 1])),
): Checkpoint {
  const state = { channel_values: values, channel_versions: versions };
  return { ...emptyCheckpoint(), id: uuid6(1), ...state };
}

function threadOf(config: { configurable?: Record<string, unknown> }): string {
  return String(config.configurable?.["thread_id"]);
}

test("each method makes one call", async () => {
  const saver = saverOf();
  let config = newThread();
  const thread = threadOf(config);
  const calls: string[] = [];
  const count = async (run: () => Promise<unknown>): Promise<void> => {
    calls.push((await counted(run)).calls.join(" "));
  };
  const put = async (values: Record<string, unknown>, versions: Record<string, number>): Promise<void> => {
    const cp = checkpointOf(values, versions);
    config = (await saver.put(config, cp, META, cp.channel_versions)) as typeof config;
  };
  await count(() => put({ a: 1, b: 2 }, { a: 1, b: 1 }));
  await count(() => put({ a: 1, b: 3 }, { a: 1, b: 2 }));
  await count(() => saver.putWrites(config, [["a", 1]], "task"));
  await count(() => saver.getTuple({ configurable: { thread_id: thread } }));
  await count(async () => {
    const found = [];
    for await (const tuple of saver.list({ configurable: { thread_id: thread } })) found.push(tuple);
    expect(found.map((t) => t.pendingWrites?.length)).toEqual([1, 0]);
  });
  await count(() => saver.copyThread(thread, `${thread}-copy`));
  await count(() => saver.prune([thread]));
  await count(() => saver.deleteThread(thread));
  expect(calls).toEqual([
    "CheckpointService/Save",
    "CheckpointService/Save",
    "CheckpointService/PutWrites",
    "CheckpointService/Load",
    "CheckpointService/ListByID",
    "ThreadService/Copy",
    "ThreadService/Prune",
    "ThreadService/Delete",
  ]);
  const copied = await saver.getTuple({ configurable: { thread_id: `${thread}-copy` } });
  expect(copied?.checkpoint.channel_values).toEqual({ a: 1, b: 3 });
  expect(await saver.getTuple({ configurable: { thread_id: thread } })).toBeUndefined();
});

test("a step sends what changed", async () => {
  const saver = saverOf();
  let config = newThread();
  const messages: string[] = [];
  const steps = 100;
  const { bytes, calls } = await counted(async () => {
    for (let step = 1; step <= steps; step++) {
      messages.push(`${step} `.padEnd(1_000, "lorem ipsum "));
      const cp = checkpointOf({ messages: [...messages], fixed: "x".repeat(10_000) }, { messages: step, fixed: 1 });
      config = (await saver.put(config, cp, META, { messages: step })) as typeof config;
    }
  });
  expect(calls).toHaveLength(steps);
  expect(bytes).toBeLessThan(steps * 2_000);
  const fresh = saverOf();
  const tuple = await fresh.getTuple(config);
  expect(tuple?.checkpoint.channel_values["messages"]).toEqual(messages);
});

test("the parent's version decides, not newVersions", async () => {
  const config = newThread();
  const first = checkpointOf({ a: "old", b: "same" });
  const root = await saverOf().put(config, first, META, first.channel_versions);
  const second = checkpointOf({ a: "new", b: "same" }, { a: 2, b: 1 });
  const put = await saverOf().put(root, second, META, { a: 2 });
  const copier = saverOf();
  const loaded = await copier.getTuple(put);
  // As update_state(…, "__copy__") does: no new versions, and the parent of the copied checkpoint.
  const copy = { ...(loaded?.checkpoint as Checkpoint), id: uuid6(2) };
  const copied = await copier.put(root, copy, { ...META, source: "fork" }, {});
  const found = await saverOf().getTuple(copied);
  expect(found?.checkpoint.channel_values).toEqual({ a: "new", b: "same" });
  expect(found?.parentConfig).toEqual(root);
});

test("a copy of a root keeps its values", async () => {
  const config = newThread();
  const first = checkpointOf({ a: "value" });
  const root = await saverOf().put(config, first, META, first.channel_versions);
  const copier = saverOf({ cacheBytes: 0 });
  const loaded = await copier.getTuple(root);
  const copy = { ...(loaded?.checkpoint as Checkpoint), id: uuid6(2) };
  const copied = await copier.put(config, copy, META, {});
  expect((await saverOf().getTuple(copied))?.checkpoint.channel_values).toEqual({ a: "value" });
});

test("a save whose base is gone sends the whole state", async () => {
  const saver = saverOf();
  const config = newThread();
  const first = checkpointOf({ a: "x".repeat(5_000), b: 1 });
  const root = await saver.put(config, first, META, first.channel_versions);
  const second = checkpointOf({ ...first.channel_values, b: 2 }, { a: 1, b: 2 });
  const parent = await saver.put(root, second, META, { b: 2 });
  const third = checkpointOf({ ...first.channel_values, b: 3 }, { a: 1, b: 3 });
  await saver.put(root, third, META, { b: 3 });
  await client.thread(threadOf(config)).prune({ keepLast: 1, remove: [second.id] });
  const fourth = checkpointOf({ ...first.channel_values, b: 4 }, { a: 1, b: 4 });
  const { calls } = await counted(() => saver.put(parent, fourth, META, { b: 4 }));
  expect(calls).toHaveLength(2);
  const found = await saver.getTuple({ configurable: { ...parent.configurable, checkpoint_id: fourth.id } });
  expect(found?.checkpoint).toEqual(fourth);
});

test("memory is bounded", async () => {
  const saver = saverOf({ cacheBytes: 2_000 });
  let config = newThread();
  for (let step = 1; step < 5; step++) {
    const cp = checkpointOf({ big: "x".repeat(5_000 * step), small: 1 }, { big: step, small: 1 });
    config = (await saver.put(config, cp, META, { big: step })) as typeof config;
  }
  const found = await saverOf().getTuple(config);
  expect(found?.checkpoint.channel_values["small"]).toBe(1);
  expect(found?.checkpoint.channel_values["big"]).toHaveLength(20_000);
});

test("late saves and writes of a deleted thread are refused", async () => {
  const saver = saverOf();
  const config = newThread();
  const first = checkpointOf({ a: 1 });
  const root = await saver.put(config, first, META, first.channel_versions);
  await client.thread(threadOf(config)).delete();
  const second = checkpointOf({ a: 2 });
  await expect(saver.put(root, second, META, {})).rejects.toThrow(GenerationError);
  await expect(saver.putWrites(root, [["a", 1]], "task")).rejects.toThrow(/the thread was deleted: stop this run/);
  expect(await saver.getTuple(config)).toBeUndefined();
  const again = await saver.put(config, checkpointOf({ a: 3 }), META, { a: 1 }); // a new run
  expect((await saver.getTuple(again))?.checkpoint.channel_values).toEqual({ a: 3 });
});

describe("two processes that save one thread", () => {
  async function race(strict: boolean): Promise<{ results: PromiseSettledResult<unknown>[]; ids: string[] }> {
    const config = newThread();
    const first = checkpointOf({ a: 0 });
    await saverOf().put(config, first, META, first.channel_versions);
    const results = await Promise.allSettled(
      [1, 2].map(async (a) => {
        const saver = saverOf({ strict });
        const tuple = await saver.getTuple(config);
        const cp = checkpointOf({ a }, { a: 2 });
        await new Promise((done) => setTimeout(done, 50)); // both have loaded
        return saver.put(tuple?.config ?? {}, cp, META, { a: 2 });
      }),
    );
    const ids: string[] = [];
    for await (const t of saverOf().list(config)) ids.push(t.checkpoint.id);
    return { results, ids };
  }

  test("strict: one conflict", async () => {
    const { results, ids } = await race(true);
    const reasons = results.filter((r) => r.status === "rejected").map((r) => r.reason as Error);
    expect(reasons).toHaveLength(1);
    expect(reasons[0]).toBeInstanceOf(ConflictError);
    expect(ids).toHaveLength(2);
  });

  test("default: siblings", async () => {
    const { results, ids } = await race(false);
    expect(results.every((r) => r.status === "fulfilled")).toBe(true);
    expect(ids).toHaveLength(3);
  });

  test("strict allows time travel", async () => {
    const saver = saverOf({ strict: true });
    const config = newThread();
    const first = checkpointOf({ a: 1 });
    const root = await saver.put(config, first, META, first.channel_versions);
    await saver.put(root, checkpointOf({ a: 2 }, { a: 2 }), META, { a: 2 });
    const loaded = await saverOf({ strict: true }).getTuple(root);
    await expect(saver.put(root, checkpointOf({ a: 3 }, { a: 3 }), META, { a: 3 })).rejects.toThrow(ConflictError);
    const traveller = saverOf({ strict: true });
    await traveller.getTuple(loaded?.config ?? {});
    await traveller.put(root, checkpointOf({ a: 3 }, { a: 3 }), META, { a: 3 });
  });
});

test("configurable names the owner of a thread", async () => {
  const saver = saverOf();
  const config = { configurable: { thread_id: "shared-name", ckptd_user: "ann" } };
  const put = await saver.put(config, checkpointOf({ a: "ann's" }), META, { a: 1 });
  expect(put.configurable).toMatchObject({ ckptd_user: "ann" });
  expect((await saver.getTuple(config))?.checkpoint.channel_values).toEqual({ a: "ann's" });
  const bob = { configurable: { thread_id: "shared-name", ckptd_user: "bob" } };
  expect(await saver.getTuple(bob)).toBeUndefined();
});

test("prune keeps the greatest id", async () => {
  const saver = saverOf();
  const config = newThread();
  const [older, newer] = [checkpointOf({ a: 1 }), checkpointOf({ a: 2 })];
  newer.id = uuid6(3);
  await saver.put(config, newer, META, { a: 1 });
  await saver.put(config, older, META, { a: 1 });
  expect((await saver.getTuple(config))?.checkpoint.id).toBe(newer.id);
  await saver.prune([threadOf(config)]);
  expect((await saver.getTuple(config))?.checkpoint.id).toBe(newer.id);
  await saver.prune([threadOf(config), "unknown"], { strategy: "delete" });
  expect(await saver.getTuple(config)).toBeUndefined();
});

describe("delta channels", () => {
  const updates = 100;

  async function grown(saver: CkptdSaver, run?: string): Promise<RunnableConfig> {
    let config: RunnableConfig = newThread();
    for (let step = 0; step <= updates; step++) {
      const snapshot = step === 0 ? { log: new DeltaSnapshot([0]) } : {};
      const cp = checkpointOf(snapshot, { log: step + 1 });
      const counters = { counters_since_delta_snapshot: { log: [step, step] } };
      const runId = step === 5 && run !== undefined ? { run_id: run } : {};
      const meta = { ...META, ...counters, ...runId } as CheckpointMetadata;
      config = await saver.put(config, cp, meta, { log: step + 1 });
      if (step < updates) await saver.putWrites(config, [["log", [step + 1]]], `task-${step}`);
    }
    return config;
  }

  async function stateOf(config: RunnableConfig): Promise<{ seed: unknown; writes: unknown[] }> {
    const saver = saverOf();
    let found: Record<string, DeltaChannelHistory> = {};
    const { calls } = await counted(async () => {
      found = await saver.getDeltaChannelHistory({ config, channels: ["log"] });
    });
    expect(calls).toEqual(["CheckpointService/Load"]);
    return { seed: found["log"]?.seed, writes: found["log"]?.writes.map((w) => w[2]) ?? [] };
  }

  test("stay the same when pruned, copied and forked", async () => {
    const saver = saverOf();
    const config = await grown(saver);
    const before = await stateOf(config);
    expect(before.writes).toEqual(Array.from({ length: updates }, (_, i) => [i + 1]));
    expect(before.seed).toMatchObject({ value: [0] });
    const copy = `${threadOf(config)}-copy`;
    await saver.prune([threadOf(config)]);
    const left = [];
    for await (const t of saver.list({ configurable: { thread_id: threadOf(config) } })) left.push(t);
    expect(left).toHaveLength(1);
    expect(await stateOf(config)).toEqual(before);
    await saver.copyThread(threadOf(config), copy);
    expect(await stateOf({ configurable: { thread_id: copy } })).toEqual(before);
    const meta = { ...META, counters_since_delta_snapshot: { log: [101, 101] } } as CheckpointMetadata;
    const fork = await saver.put(config, checkpointOf({}, { log: 200 }), meta, { log: 200 });
    expect(await stateOf(fork)).toEqual(before);
  });

  test("a deleted run takes its part, and says so", async () => {
    const saver = saverOf();
    const config = await grown(saver, "run-delta");
    const lost = await saver.deleteForRuns(["run-delta"]);
    expect(lost.some((l) => l.config.configurable?.["checkpoint_id"] === config.configurable?.["checkpoint_id"])).toBe(true);
    expect(lost[0]?.channels).toEqual(["log"]);
    const warned = new Promise((done) => process.once("warning", (w) => done(w.message)));
    await stateOf(config);
    expect(await warned).toMatch(/channel log lost a part of its history/);
  });
});

test("runs can be deleted", async () => {
  const saver = saverOf();
  const config = newThread();
  const first = checkpointOf({ a: 1 });
  const root = await saver.put(config, first, { ...META, run_id: "run-1" } as CheckpointMetadata, { a: 1 });
  await saver.put(root, checkpointOf({ a: 2 }, { a: 2 }), META, { a: 2 }); // of no run
  await saver.deleteForRuns(["run-1"]);
  const left = [];
  for await (const t of saver.list(config)) left.push(t.checkpoint.channel_values["a"]);
  expect(left).toEqual([2]);
});

test("versions have a random part", () => {
  const saver = saverOf();
  expect(saver.getNextVersion(undefined)).not.toBe(saver.getNextVersion(undefined));
  let version = 1;
  for (let i = 0; i < 100; i++) {
    const next = saver.getNextVersion(version);
    expect(next).toBeGreaterThan(version);
    version = next;
  }
  expect(JSON.stringify({ saver })).toBe('{"saver":"[CkptdSaver]"}');
});

describe("errors say what to do", () => {
  const cp = checkpointOf({ a: 1 });

  test("no daemon", async () => {
    const saver = new CkptdSaver("unix:///nowhere.sock", { attempts: 1 });
    const failed = expect(saver.getTuple(newThread())).rejects;
    await failed.toThrow(UnreachableError);
    await failed.toThrow(/check the URL, and that `ckptd serve` runs there/);
  });

  test("wrong token", async () => {
    const saver = new CkptdSaver(daemon.tcp, { token: "wrong" });
    const failed = expect(saver.put(newThread(), cp, META, {})).rejects;
    await failed.toThrow(UnauthenticatedError);
    await failed.toThrow(/pass token or tokenFile, or set CKPTD_TOKEN/);
  });

  test.each(["socket", "tcp"] as const)("state too large, by %s", async (way) => {
    const saver = new CkptdSaver(daemon[way], way === "tcp" ? { token: daemon.token } : {});
    const large = checkpointOf({ a: "x".repeat(30 << 20) });
    const failed = expect(saver.put(newThread(), large, META, { a: 1 })).rejects;
    await failed.toThrow(TooLargeError);
    await failed.toThrow(/--max-message/);
  });

  test("names and configs", async () => {
    const saver = saverOf();
    await expect(saver.put({}, cp, META, {})).rejects.toThrow(/has no thread_id/);
    await expect(saver.putWrites(newThread(), [], "t")).rejects.toThrow(/has no checkpoint_id/);
    const own = checkpointOf({ [BODY]: 1 });
    await expect(saver.put(newThread(), own, META, {})).rejects.toThrow(InvalidError);
    const other = await client.thread("not-of-langgraph").save({ a: new Uint8Array() });
    const config = { configurable: { thread_id: other.ref.thread } };
    await expect(saver.getTuple(config)).rejects.toThrow(/another program than LangGraph saved it/);
  });
});
