// The scripts of internal/conformance, with the client and with deliberately wrong ones.

import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { build } from "../../../test/programs.js";
import { names, play } from "./suite.js";

const PACKAGE = resolve(import.meta.dirname, "..");
const DIST = join(PACKAGE, "dist");
// Below node_modules, so that the wrong clients find their dependencies.
const WRONG = resolve(PACKAGE, "../../node_modules/.cache/ckptd-wrong");

let server: string;
beforeAll(() => {
  server = build("conformance", "./internal/conformance/serve");
});

describe("conformance", () => {
  let problems: Map<string, string[]>;
  beforeAll(async () => {
    problems = await play(server, names(), DIST);
  });

  test.each(names())("%s", (script) => {
    expect(problems.get(script)).toEqual([]);
  });
});

interface Mutation {
  readonly about: string;
  readonly file: string;
  readonly right: string;
  readonly wrong: string;
  readonly foundBy: string;
}

const MUTATIONS: Mutation[] = [
  {
    about: "repeats calls that are not idempotent",
    file: "rules.ts",
    right: "return rule.retry as May",
    wrong: "return Retry.REPEAT",
    foundBy: "delete-cut",
  },
  {
    about: "repeats every failure",
    file: "retry.ts",
    right: "!v.again || ",
    wrong: "",
    foundBy: "save-conflict",
  },
  {
    about: "never stops repeating",
    file: "retry.ts",
    right: "this.tried >= this.policy.attempts",
    wrong: "this.tried >= 99",
    foundBy: "save-cut-always",
  },
  {
    about: "never repeats a call after a lost answer",
    file: "retry.ts",
    right: "verdict(this.unanswered(error), this.may !== Rule.NEVER)",
    wrong: "verdict(this.unanswered(error))",
    foundBy: "load-cut",
  },
  {
    about: "gives drafts no ids",
    file: "thread.ts",
    right: "made.id || this.caller.newId()",
    wrong: 'made.id || ""',
    foundBy: "save-cut-before",
  },
  {
    about: "gives the saves of a batch no ids",
    file: "client.ts",
    right: "made.id || this.caller.newId()",
    wrong: 'made.id || ""',
    foundBy: "batch-cut",
  },
  {
    about: "gives the whole save a different id than the edits",
    file: "session.ts",
    right: "id: made.id || this.caller.newId()",
    wrong: "id: made.id",
    foundBy: "session-need-full",
  },
  {
    about: "ignores NEED_FULL",
    file: "session.ts",
    right: "if (!(e instanceof NeedFullError)) throw e;",
    wrong: "throw e;",
    foundBy: "session-need-full",
  },
  {
    about: "never sends edits",
    file: "session.ts",
    right: "if (had === undefined) return now;",
    wrong: "if (now) return now;",
    foundBy: "session-need-full",
  },
  {
    about: "ignores Retry-After",
    file: "retry.ts",
    right: "return v.after + ",
    wrong: "return ",
    foundBy: "save-overloaded",
  },
  {
    about: "forgets a lost answer",
    file: "retry.ts",
    right: "this.doubt = this.doubt || ",
    wrong: "this.doubt = ",
    foundBy: "save-cut-then-overloaded",
  },
  {
    about: "is in doubt about reads",
    file: "retry.ts",
    right: "this.may === Rule.READ || !sent",
    wrong: "!sent",
    foundBy: "load-cut-always",
  },
  {
    about: "takes a proxy's answer for proof that nothing was done",
    file: "retry.ts",
    right: "return this.lost(new UnreachableError(text))",
    wrong: "return verdict(new UnreachableError(text), this.may !== Rule.NEVER)",
    foundBy: "delete-proxy",
  },
  {
    about: "repeats a save although the disk is full",
    file: "retry.ts",
    right: "again && !(error instanceof NoSpaceError)",
    wrong: "again",
    foundBy: "save-no-space",
  },
  {
    about: "does not repeat an ambiguous save",
    file: "retry.ts",
    right: "error instanceof UnavailableError || error instanceof AmbiguousError",
    wrong: "error instanceof UnavailableError",
    foundBy: "save-ambiguous",
  },
  {
    about: "loses the cursor of a watch",
    file: "watch.ts",
    right: "{ ...ask, cursor: m.cursor }",
    wrong: "{ ...ask }",
    foundBy: "watch-cut",
  },
  {
    about: "yields an event twice",
    file: "watch.ts",
    right: "if (seen.first(event)) yield event;",
    wrong: "yield event;",
    foundBy: "watch-cut",
  },
  {
    about: "lets the daemon end a watch",
    file: "calls.ts",
    right: "if (message === undefined && endless)",
    wrong: "if (message === undefined && !this)",
    foundBy: "watch-ended",
  },
  {
    about: "restarts a list from the beginning",
    file: "calls.ts",
    right: "ask(Math.max(left, 0), token)",
    wrong: 'ask(Math.max(left, 0), "")',
    foundBy: "list-cut",
  },
  {
    about: "accepts half a message",
    file: "connect.ts",
    right: "if (this.size < HEAD + length) return undefined;",
    wrong: "if (this.size < HEAD + 2) return undefined;",
    foundBy: "watch-cut-in-event",
  },
];

afterAll(() => rmSync(WRONG, { recursive: true, force: true }));

test.concurrent.each(MUTATIONS.map((m, i) => [m.about, i, m] as const))(
  "the suite finds a client that %s",
  async (_, i, m) => {
    const dist = join(WRONG, String(i));
    cpSync(DIST, dist, { recursive: true });
    const source = readFileSync(join(PACKAGE, "src", m.file), "utf8");
    expect(source.split(m.right).length - 1, `${m.file} has "${m.right}" once`).toBe(1);
    const { outputText } = ts.transpileModule(source.replace(m.right, m.wrong), {
      compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext },
    });
    mkdirSync(dist, { recursive: true });
    writeFileSync(join(dist, m.file.replace(/ts$/, "js")), outputText);
    writeFileSync(join(dist, "package.json"), '{"type":"module"}');
    expect(readdirSync(dist)).toContain("index.js");
    const problems = await play(server, [m.foundBy], dist);
    expect(problems.get(m.foundBy)).not.toEqual([]);
  },
);
