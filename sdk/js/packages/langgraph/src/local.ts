// A daemon for the store in a folder, shared by all processes that use it.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { accessSync, closeSync, constants, mkdirSync, openSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { CkptdError, UnreachableError } from "@ckptd/client";

/** Options of CkptdSaver.local. */
export interface LocalOptions {
  /** The program; default: CKPTD_BIN, the package @ckptd/cli, or ckptd in PATH. */
  readonly bin?: string | undefined;
  /** How long the daemon waits without a connection before it ends, as in 30s. */
  readonly untilUnused?: string | undefined;
}

// The longest path that a Unix socket can have on all systems.
const LONGEST = 103;
/** The daemon's exit code if another one serves the store. */
const TAKEN = 7;
const START_AT_MOST = 10_000;

/** No program was found, or it cannot serve the folder. */
export class LocalDaemonError extends CkptdError {
  static override readonly reason = "LOCAL";
}

/** A daemon for the store in a folder. */
export class Daemon {
  readonly url: string;
  private readonly folder: string;
  private readonly socket: string;
  private starting: Promise<void> | undefined;

  constructor(
    folder: string,
    private readonly options: LocalOptions,
  ) {
    this.folder = resolve(folder);
    this.socket = socketOf(this.folder);
    this.url = `unix://${this.socket}`;
  }

  /** Connects to the daemon, or starts it. */
  async start(): Promise<void> {
    if (await answers(this.socket)) return;
    mkdirSync(dirname(this.folder), { recursive: true });
    mkdirSync(dirname(this.socket), { recursive: true, mode: 0o700 });
    const program = findProgram(this.options.bin);
    const log = `${this.folder}.log`;
    const out = openSync(log, "a", 0o600);
    const args = ["serve", "--data", this.folder, "--socket", this.socket, "--listen", "none"];
    args.push("--admin-socket", "none", "--until-unused", this.options.untilUnused ?? "30s");
    const child = spawn(program, args, { detached: true, stdio: ["ignore", out, out] });
    let ended: string | undefined;
    child.once("error", (e) => (ended = e.message));
    child.once("exit", (code) => {
      if (code !== TAKEN) ended = `it ended with exit code ${code}: ${lastLine(log)}`;
    });
    child.unref();
    closeSync(out);
    const end = Date.now() + START_AT_MOST;
    while (!(await answers(this.socket))) {
      if (ended === undefined && Date.now() > end) ended = "it does not answer";
      if (ended !== undefined) {
        throw new LocalDaemonError(`${program} does not serve ${this.folder}: ${ended}`);
      }
      await new Promise((done) => setTimeout(done, 5));
    }
  }

  /** Starts the daemon in the background if it is gone. */
  restart(error: CkptdError): void {
    if (!(error instanceof UnreachableError) || this.starting !== undefined) return;
    const done = (): void => void (this.starting = undefined);
    this.starting = this.start().then(done, done); // the call fails if this does
  }
}

/** Returns the path of the socket: beside the store, or a short one if that is too long. */
function socketOf(folder: string): string {
  const path = `${folder}.sock`;
  if (Buffer.byteLength(path) <= LONGEST) return path;
  const hash = createHash("sha256").update(folder).digest("hex").slice(0, 16);
  return join(tmpdir(), `ckptd-${userInfo().uid}`, `${hash}.sock`);
}

function answers(socket: string): Promise<boolean> {
  return new Promise((done) => {
    const connection = connect(socket);
    connection.once("connect", () => {
      connection.destroy();
      done(true);
    });
    connection.once("error", () => done(false));
  });
}

function findProgram(bin: string | undefined): string {
  const named = bin ?? process.env["CKPTD_BIN"];
  if (named !== undefined && named !== "") return named;
  const packaged = packagedProgram();
  if (packaged !== undefined) return packaged;
  const name = process.platform === "win32" ? "ckptd.exe" : "ckptd";
  for (const folder of (process.env["PATH"] ?? "").split(delimiter)) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      continue;
    }
  }
  throw new LocalDaemonError(
    "the program ckptd was not found; install @ckptd/cli, set CKPTD_BIN, or pass bin",
  );
}

/** Returns the program of the package @ckptd/cli, which exports its path. */
function packagedProgram(): string | undefined {
  const require = createRequire(import.meta.url);
  try {
    const cli = require("@ckptd/cli") as { path?: unknown };
    return typeof cli.path === "string" ? cli.path : undefined;
  } catch {
    return undefined;
  }
}

function lastLine(log: string): string {
  const lines = readFileSync(log, "utf8").trim().split("\n");
  return lines.at(-1) ?? "";
}
