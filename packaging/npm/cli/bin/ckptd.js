#!/usr/bin/env node
import { spawn } from "node:child_process";
import { constants } from "node:os";
import { program } from "../index.js";

function fail(error) {
  console.error(`ckptd: ${error.message}`);
  process.exit(1);
}

let path;
try {
  path = program();
} catch (error) {
  fail(error);
}
const child = spawn(path, process.argv.slice(2), { stdio: "inherit" });
child.on("error", fail);

// A terminal sends these to the program itself, and a second signal would end it at once.
const terminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
for (const signal of ["SIGINT", "SIGQUIT"]) {
  process.on(signal, () => terminal || child.kill(signal));
}
for (const signal of ["SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}

child.on("exit", (code, signal) => {
  process.exitCode = code ?? 128 + constants.signals[signal];
});
