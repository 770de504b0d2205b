// Runs the conformance suite of the project with a build of the client.

import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { ROOT } from "../../../test/programs.js";

/** Returns the names of the scripts. */
export function names(): string[] {
  const files = readdirSync(join(ROOT, "internal/conformance/scripts"));
  return files.filter((f) => f.endsWith(".json")).map((f) => basename(f, ".json")).sort();
}

/** Plays scripts with the client in the folder dist, and returns the problems of each. */
export async function play(server: string, scripts: string[], dist: string): Promise<Map<string, string[]>> {
  const run = `^(${scripts.join("|")})$`;
  const suite = spawn("timeout", ["100", server, "-run", run]);
  const driver = spawn(process.execPath, [join(import.meta.dirname, "driver.mjs"), dist]);
  suite.stdout.pipe(driver.stdin);
  driver.stdout.pipe(suite.stdin);
  let found = "";
  let said = "";
  suite.stderr.on("data", (data: Buffer) => (found += data.toString()));
  driver.stderr.on("data", (data: Buffer) => (said += data.toString()));
  suite.stdin.on("error", () => {});
  driver.stdin.on("error", () => {});
  const code = await new Promise((done) => suite.on("close", done));
  driver.kill();
  const problems = new Map<string, string[]>(scripts.map((name) => [name, []]));
  for (const line of found.trim().split("\n")) {
    const at = line.indexOf(": ");
    const name = line.slice(0, Math.max(at, 0));
    problems.set(name, [...(problems.get(name) ?? []), line.slice(at + 2)]);
  }
  if (code !== 0 && scripts.every((s) => problems.get(s)?.length === 0)) {
    throw new Error(`the suite failed: ${found}\n${said}`);
  }
  return problems;
}
