// The packages as they are installed, and the examples of their README files.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { build, serve } from "./programs.js";

const WORKSPACE = resolve(import.meta.dirname, "..");
const NAMES = ["client", "langgraph"];

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "ckptd-js-"));
  const modules = join(folder, "node_modules");
  mkdirSync(join(modules, "@ckptd"), { recursive: true });
  for (const name of ["@bufbuild", "@langchain"]) {
    symlinkSync(join(WORKSPACE, "node_modules", name), join(modules, name));
  }
  for (const name of NAMES) {
    const args = ["pack", "--silent", "--workspace", `@ckptd/${name}`, "--pack-destination", folder];
    const file = execFileSync("npm", args, { cwd: WORKSPACE, encoding: "utf8" }).trim();
    const target = join(modules, "@ckptd", name);
    mkdirSync(target);
    execFileSync("tar", ["-xzf", join(folder, file), "-C", target, "--strip-components", "1"]);
  }
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Returns the first example of a README. */
function exampleOf(name: string): string {
  const text = readFileSync(join(folder, "node_modules", "@ckptd", name, "README.md"), "utf8");
  return /```js\n([\s\S]*?)```/.exec(text)?.[1] ?? "";
}

function run(code: string): string {
  writeFileSync(join(folder, "example.mjs"), code);
  const env = { ...process.env, CKPTD_BIN: build("ckptd", "./cmd/ckptd") };
  return execFileSync(process.execPath, ["example.mjs"], { cwd: folder, env, encoding: "utf8" });
}

test("the quick start of the client", async () => {
  const daemon = await serve();
  const example = exampleOf("client");
  expect(example).toContain('"unix://data.sock"');
  expect(run(example.replace("unix://data.sock", daemon.socket))).toBe("[ 'Where is my parcel?' ]\n");
  await daemon.stop();
});

test("the quick start of the saver", () => {
  const graph = `
    import { MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
    const workflow = new StateGraph(MessagesAnnotation)
      .addNode("echo", () => ({ messages: ["hello, too"] }))
      .addEdge(START, "echo");`;
  const more = `
    const again = await graph.getState({ configurable: { thread_id: "1" } });
    console.log(again.values.messages.map((m) => m.content));`;
  expect(run(graph + exampleOf("langgraph") + more)).toBe("[ 'hello', 'hello, too' ]\n");
});

test("the packages have types and no sources", () => {
  for (const name of NAMES) {
    const list = execFileSync("find", [".", "-type", "f"], {
      cwd: join(folder, "node_modules", "@ckptd", name),
      encoding: "utf8",
    });
    expect(list).toContain("./dist/index.d.ts\n");
    expect(list).not.toMatch(/\/(src|test)\/|tsbuildinfo/);
  }
});

test("the lock file names no registry", () => {
  const lock = JSON.parse(readFileSync(join(WORKSPACE, "package-lock.json"), "utf8")) as {
    packages: Record<string, { resolved?: string; integrity?: string; link?: boolean }>;
  };
  for (const [path, entry] of Object.entries(lock.packages)) {
    if (!path.startsWith("node_modules/") || entry.link) continue;
    expect(entry.resolved, path).toBeUndefined();
    expect(entry.integrity, path).toMatch(/^sha512-/);
  }
});
