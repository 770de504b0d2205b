// The client and a daemon.

import {
  asJson,
  Client,
  ClosedError,
  ConflictError,
  NotFoundError,
  Put,
  Remove,
  UnreachableError,
  type Checkpoint,
  type Event,
} from "@ckptd/client";
import { AdminService } from "@ckptd/client/v1";
import { counted } from "../../../test/count.js";
import { serve, type Daemon } from "../../../test/programs.js";

let daemon: Daemon;
let client: Client;
let names = 0;
const newName = (): string => `thread-${++names}`;

beforeAll(async () => {
  daemon = await serve({ tls: true });
  client = new Client(daemon.socket);
});
afterAll(async () => {
  client.close();
  await daemon.stop();
});

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

test("saves, loads and forks", async () => {
  const thread = client.thread(newName());
  const state = { plan: asJson({ to: "Oslo" }), raw: new Uint8Array([0]) };
  const labels = { team: "travel" };
  const first = await thread.save({ channels: state, step: 1, labels, meta: '{"a":1}', expectHead: 0 });
  const changes = { plan: asJson({ to: "Bergen" }) };
  const second = await thread.save({ channels: changes, step: 2, keep: true, parent: first.id });
  expect(second).toMatchObject({ parent: first.id, seq: 2, parentSeq: 1, step: 2, labels });
  const loaded = await thread.load();
  expect(loaded.channels.get("plan")?.json()).toEqual({ to: "Bergen" });
  expect(loaded.channels.get("raw")?.data).toEqual(new Uint8Array([0]));
  expect(loaded.head).toEqual({ seq: 2, id: second.id });
  await thread.save({ channels: { raw: new Remove() }, keep: true });
  expect([...(await thread.load()).channels.keys()]).toEqual(["plan"]);
  await thread.fork(first.id, "plan-b");
  const branch = await thread.load({ which: { case: "branch", value: "plan-b" } });
  expect(branch.id).toBe(first.id);
  expect((await thread.branches()).map((b) => b.name)).toEqual(["plan-b"]);
  await thread.setBranch("plan-b", second.id);
  await thread.deleteBranch("plan-b");
  expect((await thread.tree()).nodes).toHaveLength(3);
  expect((await thread.diff(first.id, second.id)).channels[0]?.value?.kind).toBe("changed");
  const stale = thread.save({ channels: {}, expectHead: 1 });
  await expect(stale).rejects.toThrow(ConflictError);
  await expect(stale).rejects.toMatchObject({ headSeq: 3, reason: "CONFLICT" });
});

test("lists, over pages too", async () => {
  const name = newName();
  const thread = client.thread(name);
  for (let step = 1; step <= 5; step++) {
    await thread.save({ channels: { n: asJson(step) }, step, meta: `{"even":${step % 2 === 0}}` });
  }
  expect((await all(thread.history())).map((c) => c.step)).toEqual([5, 4, 3, 2, 1]);
  expect((await all(thread.history({ limit: 2, data: true })))[0]?.channels.get("n")?.json()).toBe(5);
  const listed = await all(client.user().list({ thread: name, meta: '{"even":true}', data: true }));
  expect(listed.map((c) => c.channels.get("n")?.json())).toEqual([4, 2]);
  expect((await all(client.user().query({ minStep: 5n }))).length).toBeGreaterThan(0);
  expect((await all(client.user().threads({ prefix: name }))).map((t) => t.headSeq)).toEqual([5]);
  expect((await client.user().latest()).ref.thread).toBe(name);
});

test("writes, labels, copies and deletes", async () => {
  const thread = client.thread(newName());
  const { id } = await thread.save({});
  const generation = await thread.putWrites(id, "task", [{ channel: "c", data: new Uint8Array([1]), index: -1 }]);
  expect(generation).toBe(1);
  const [write] = await thread.writes(id);
  expect(write?.write).toEqual({ channel: "c", type: "bytes", index: -1, data: new Uint8Array([1]) });
  expect((await thread.setLabels(id, { a: "b" })).labels).toEqual({ a: "b" });
  const copy = newName();
  await thread.copy(copy);
  expect(await client.thread(copy).namespaces()).toEqual([""]);
  expect(await thread.delete()).toBe(2);
  await expect(thread.load()).rejects.toThrow(NotFoundError);
  await thread.save({});
  expect((await thread.prune({ keepLast: 1, dryRun: true })).kept).toBe(1n);
});

test("a batch answers each save", async () => {
  const [a, b] = [client.thread(newName()), client.thread(newName())];
  const results = await client.saveBatch([
    [a, { channels: { x: asJson(1) } }],
    [b, { channels: {}, expectHead: 7 }],
  ]);
  expect((results[0] as Checkpoint).seq).toBe(1);
  expect(results[1]).toBeInstanceOf(ConflictError);
});

test("blobs", async () => {
  const content = new Uint8Array(1 << 20).map((_, i) => i * 31);
  const user = client.user();
  const blob = await user.putBlob(content);
  expect(Buffer.compare(await user.readBlob(blob.id), content)).toBe(0);
  expect(await user.statBlob(blob.id)).toMatchObject({ size: content.length });
  const pieces = (): Uint8Array[] => [content.subarray(0, 9), content.subarray(9)];
  expect((await user.putBlob(pieces)).id).toBe(blob.id);
});

test("a watch resumes after a restart of the daemon", async () => {
  const thread = client.thread(newName());
  const events: Event[] = [];
  let restarted: Promise<void> | undefined;
  for await (const e of thread.watch({ began: true })) {
    if (e.id === "") {
      await thread.save({});
      continue;
    }
    events.push(e);
    restarted ??= daemon.restart().then(async () => void (await thread.save({})));
    if (events.length === 2) break;
  }
  await restarted;
  expect(events.map((e) => e.seq)).toEqual([1, 2]);
});

test("a session sends only differences", async () => {
  const thread = client.thread(newName());
  const session = thread.session();
  let messages = "";
  const save = async (): Promise<void> => {
    messages += "another message of a kilobyte ".repeat(33);
    await session.save({ messages: new Put(new Uint8Array(Buffer.from(messages)), "text") });
  };
  const { bytes } = await counted(async () => {
    for (let step = 0; step < 50; step++) await save();
  });
  expect(bytes).toBeLessThan(50 * 1_500);
  await thread.save({ messages: asJson("by another writer") });
  await save(); // NEED_FULL
  expect((await thread.load()).channels.get("messages")?.text()).toBe(messages);
  const loaded = await session.load();
  expect(loaded.channels.get("messages")?.text()).toBe(messages);
});

test("services have a function for each method", async () => {
  expect((await client.admin.whoAmI({})).caller).toMatch(/^peer:/);
  const users = await all(client.admin.listUsers({ tenant: "default" }));
  expect(users.flatMap((m) => m.users)).toEqual(["local"]);
  expect((await client.call(AdminService.method.getStatus, {})).saves).toBeGreaterThan(0n);
  expect((await client.migrations.listMigrationJobs({ tenant: "default" })).jobs).toEqual([]);
});

test("TLS with a token", async () => {
  const trusted = new Client(daemon.tcp, { token: daemon.token, tlsCa: daemon.ca });
  const thread = trusted.thread(newName());
  await thread.save({ a: asJson(1) });
  expect((await thread.load()).ref).toMatchObject({ tenant: "default", user: "local" });
  trusted.close();
  const untrusting = new Client(daemon.tcp, { token: daemon.token });
  await expect(untrusting.thread("t").load()).rejects.toThrow(UnreachableError); // at once
  untrusting.close();
});

test("many calls at a time, and a close in between", async () => {
  const own = new Client(daemon.socket);
  const name = newName();
  await Promise.all(Array.from({ length: 100 }, () => own.thread(name).save({})));
  expect((await own.thread(name).load()).seq).toBe(100);
  const watched = own.thread(name).watch({ began: true });
  await watched.next();
  const next = watched.next();
  own.close();
  await expect(next).rejects.toThrow(ClosedError);
});
