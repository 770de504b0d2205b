// The saver with a redactor, and with a migration.

import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { emptyCheckpoint, uuid6, type Checkpoint } from "@langchain/langgraph-checkpoint";
import { CkptdSaver } from "@ckptd/langgraph";
import { Client, SchemaTooNewError } from "@ckptd/client";
import { build, serve } from "../../../test/programs.js";

const META = { source: "loop", step: 1, parents: {} } as const;
const config = { configurable: { thread_id: "t", checkpoint_ns: "" } };

function checkpointOf(values: Record<string, unknown>, version: number): Checkpoint {
  const channel_versions = Object.fromEntries(Object.keys(values).map((k) => [k, version]));
  return { ...emptyCheckpoint(), id: uuid6(version), channel_values: values, channel_versions };
}

function filesOf(folder: string): string[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    const stat = statSync(path);
    return stat.isDirectory() ? filesOf(path) : stat.isFile() ? [path] : [];
  });
}

test("redacted text does not reach the disk, and later saves are right", async () => {
  const daemon = await serve();
  const client = new Client(daemon.socket);
  await client.plugins.installPlugin({ builtin: "redact" });
  const saver = new CkptdSaver(daemon.socket);
  const messages = ["my mail is mia.li@example.com"];
  let at = await saver.put(config, checkpointOf({ messages, rest: 1 }, 1), META, { messages: 1, rest: 1 });
  for (let step = 2; step < 6; step++) {
    messages.push(`step ${step}`);
    at = await saver.put(at, checkpointOf({ messages: [...messages], rest: step }, step), META, {
      messages: step,
      rest: step,
    });
    await saver.putWrites(at, [["messages", "mia.li@example.com"]], "task");
  }
  const found = await saver.getTuple(config);
  expect(JSON.stringify(found)).not.toContain("mia.li@example.com");
  const loaded = found?.checkpoint.channel_values["messages"] as string[];
  expect(loaded.slice(1)).toEqual(messages.slice(1));
  // The next state continues the redacted one.
  const next = checkpointOf({ ...found?.checkpoint.channel_values, rest: 9 }, 9);
  next.channel_versions["messages"] = 5;
  await saver.put(at, next, META, { rest: 9 });
  expect((await new CkptdSaver(daemon.socket).getTuple(config))?.checkpoint).toEqual(next);
  for (const file of filesOf(daemon.folder)) {
    expect(readFileSync(file).includes("mia.li@example.com"), file).toBe(false);
  }
  client.close();
  await daemon.stop();
});

test("an older state is migrated when it is loaded, with its versions", async () => {
  const daemon = await serve();
  const old = new CkptdSaver(daemon.socket, { kind: "support", schemaVersion: 1 });
  const put = await old.put(config, checkpointOf({ user_pref: { lang: "en" } }, 1), META, { user_pref: 1 });
  const folder = join(daemon.folder, "sets", "support");
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    join(folder, "0002_rename.jq"),
    `.channels.preferences = .channels.user_pref | del(.channels.user_pref)
     | .channels.__langgraph__.channel_versions |= (.preferences = .user_pref | del(.user_pref))`,
  );
  const command = ["migrate", "install", join(daemon.folder, "sets"), "--server", daemon.socket];
  execFileSync(build("ckptd", "./cmd/ckptd"), command);
  const saver = new CkptdSaver(daemon.socket, { kind: "support", schemaVersion: 2 });
  const found = await saver.getTuple(put);
  expect(found?.checkpoint.channel_values).toEqual({ preferences: { lang: "en" } });
  expect(found?.checkpoint.channel_versions).toEqual({ preferences: 1 });
  // A save after it, which keeps a channel.
  const next = checkpointOf({ preferences: { lang: "en" }, more: 1 }, 2);
  next.channel_versions["preferences"] = 1;
  const saved = await saver.put(put, next, META, { more: 2 });
  expect((await saver.getTuple(saved))?.checkpoint).toEqual(next);
  await expect(old.getTuple(saved)).rejects.toThrow(SchemaTooNewError);
  await expect(old.getTuple(saved)).rejects.toThrow(/upgrade the program, or allow steps back with down: true/);
  await daemon.stop();
});
