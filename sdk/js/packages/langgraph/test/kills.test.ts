// An agent that is killed, or whose daemon is, at random points ends as if undisturbed.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { serve } from "../../../test/programs.js";

const KILLS = Number(process.env["CKPTD_JS_KILLS"] ?? 6);
const TURNS = 20 * KILLS;

test(`an agent survives ${KILLS} kills`, { timeout: 600_000 }, async () => {
  const daemon = await serve();
  const log = join(daemon.folder, "tools");
  let said = "";
  const start = async (): Promise<ChildProcess> => {
    said = "";
    const args = [join(import.meta.dirname, "agent.mjs"), daemon.socket, log, String(TURNS)];
    const agent = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    agent.stdout.on("data", (data: Buffer) => (said += data.toString()));
    await once(agent.stdout, "data"); // it runs
    return agent;
  };
  let agent = await start();
  for (let kill = 0; kill < KILLS; kill++) {
    await new Promise((done) => setTimeout(done, Math.random() * 150));
    if (kill % 2 === 0) {
      agent.kill("SIGKILL");
      if (agent.exitCode === null && agent.signalCode === null) await once(agent, "exit");
      agent = await start();
    } else {
      await daemon.restart();
    }
  }
  if (agent.exitCode === null) await once(agent, "exit");
  expect(agent.exitCode).toBe(0);
  const messages = JSON.parse(said.trim().split("\n").at(-1) ?? "") as { content: string }[];
  const turns = Array.from({ length: TURNS }, (_, n) => [`call tool ${n}`, `result ${n} `.padEnd(500, "x")]);
  expect(messages.map((m) => m.content)).toEqual(["go", ...turns.flat(), "done"]);
  const saved = new Set<string>();
  for (const line of readFileSync(log, "utf8").trim().split("\n")) {
    const [what, tool = ""] = line.split(" ");
    if (what === "saved") saved.add(tool);
    else expect(saved.has(tool), `tool ${tool} ran again`).toBe(false);
  }
  expect(saved.size).toBeGreaterThan(TURNS / 2);
  await daemon.stop();
});
