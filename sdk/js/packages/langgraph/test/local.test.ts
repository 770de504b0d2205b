// Daemons that CkptdSaver.local starts.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { emptyCheckpoint } from "@langchain/langgraph-checkpoint";
import { CkptdSaver, LocalDaemonError } from "@ckptd/langgraph";
import { build } from "../../../test/programs.js";

const META = { source: "loop", step: 1, parents: {} } as const;
const config = { configurable: { thread_id: "t", checkpoint_ns: "" } };

let bin: string;
let folder: string;
beforeAll(() => {
  bin = build("ckptd", "./cmd/ckptd");
});
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "ckptd-js-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function gone(path: string): Promise<void> {
  for (let i = 0; existsSync(path) && i < 200; i++) await new Promise((done) => setTimeout(done, 50));
  expect(existsSync(path)).toBe(false);
}

test("is shared, ends when unused, and starts again", async () => {
  const data = join(folder, "data");
  const options = { bin, untilUnused: "1s" };
  const savers = await Promise.all([1, 2, 3].map(() => CkptdSaver.local(data, options)));
  const put = await savers[0]?.put(config, emptyCheckpoint(), META, {});
  expect(await savers[1]?.getTuple(config)).toMatchObject({ config: put });
  for (const saver of savers.slice(0, 2)) saver.close();
  await gone(`${data}.sock`);
  expect(await savers[2]?.getTuple(config)).toMatchObject({ config: put });
  savers[2]?.close();
  await gone(`${data}.sock`);
});

test("takes a short socket for a long path", async () => {
  const data = join(folder, "a-long-name-of-a-folder/".repeat(6), "data");
  const saver = await CkptdSaver.local(data, { bin, untilUnused: "1s" });
  await saver.put(config, emptyCheckpoint(), META, {});
  expect(existsSync(`${data}.sock`)).toBe(false);
  saver.close();
});

test("says why there is no daemon", async () => {
  const data = join(folder, "data");
  const missing = CkptdSaver.local(data, { bin: join(folder, "none") });
  await expect(missing).rejects.toThrow(LocalDaemonError);
  const broken = CkptdSaver.local(data, { bin, untilUnused: "soon" });
  await expect(broken).rejects.toThrow(/ended with exit code 2: .*soon/);
});

test("the example is interrupted, killed, resumed, rewound and forked", () => {
  const example = resolve(import.meta.dirname, "../../../examples/approval.mjs");
  const env = { ...process.env, CKPTD_BIN: bin };
  const said = execFileSync(process.execPath, [example, join(folder, "data")], { env, encoding: "utf8" });
  expect(said.trim().split("\n")).toEqual([
    "waits for approval",
    "killed",
    "another process finds the question: refund 40 EUR?",
    "told the customer: refund of 40 EUR: yes",
    "rewound to the question, and forked",
    "told the customer: refund of 40 EUR: no",
  ]);
});
