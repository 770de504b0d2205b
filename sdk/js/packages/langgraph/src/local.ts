// A daemon for the store in a folder, shared by all processes that use it.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { accessSync, closeSync, constants, lstatSync, mkdirSync, openSync, readFileSync } from "node:fs";
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
    const end = Date.now() + START_AT_MOST;
    while (!(await answers(this.socket))) {
      const program = await findProgram(this.options.bin);
      mkdirSync(dirname(this.folder), { recursive: true });
      ownFolder(this.socket, this.folder);
      const why = await this.run(program, end);
      if (why !== undefined) {
        throw new LocalDaemonError(`${program} does not serve ${this.folder}: ${why}`);
      }
    }
  }

  /**
   * Starts the program, and waits until the socket answers. It returns the reason if none will. If
   * another process was faster, that one's daemon answers soon, or has just ended.
   */
  private async run(program: string, end: number): Promise<string | undefined> {
    const log = `${this.folder}.log`;
    const out = openSync(log, "a", 0o600);
    const args = ["serve", "--data", this.folder, "--socket", this.socket, "--listen", "none"];
    args.push("--admin-socket", "none", "--until-unused", this.options.untilUnused ?? "30s");
    const child = spawn(program, args, { detached: true, stdio: ["ignore", out, out] });
    closeSync(out);
    child.unref();
    let failed: string | undefined;
    child.once("error", (e) => (failed = e.message));
    while (!(await answers(this.socket))) {
      if (failed !== undefined) return failed;
      if (Date.now() > end) return `it does not answer; its log is ${log}`;
      await new Promise((done) => setTimeout(done, child.exitCode === TAKEN ? 50 : 5));
      if (child.exitCode === TAKEN) return undefined;
      if (child.exitCode !== null) {
        return `it ended with exit code ${child.exitCode}: ${lastLine(log)}`;
      }
    }
    return undefined;
  }

  /** Starts the daemon in the background if it is gone. */
  restart(error: CkptdError): void {
    if (!(error instanceof UnreachableError) || this.starting !== undefined) return;
    const done = (): void => void (this.starting = undefined);
    this.starting = this.start().then(done, done); // the call fails if this does
  }
}

/** Makes the folder of a socket outside the store's, which must be the user's own. */
function ownFolder(socket: string, store: string): void {
  const folder = dirname(socket);
  if (folder === dirname(store)) return;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const { uid, mode } = lstatSync(folder);
  if (uid !== userInfo().uid || (mode & 0o077) !== 0) {
    throw new LocalDaemonError(`others can use ${folder}, so no socket can be there: remove it`);
  }
}

/** Returns the path of the socket: next to the store, or a short one if that is too long. */
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

/** Returns the program: named by the caller, of the package @ckptd/cli, or in PATH. */
async function findProgram(bin: string | undefined): Promise<string> {
  const named = bin ?? process.env["CKPTD_BIN"];
  if (named !== undefined && named !== "") return named;
  const found = (await packaged()) ?? inPath();
  if (found !== undefined) return found;
  throw new LocalDaemonError(
    "the program ckptd was not found; install @ckptd/cli, set CKPTD_BIN, or pass bin",
  );
}

async function packaged(): Promise<string | undefined> {
  const name = "@ckptd/cli"; // optional, so the compiler must not look for it
  try {
    const cli = (await import(name)) as { program(): string };
    return cli.program();
  } catch {
    return undefined;
  }
}

function inPath(): string | undefined {
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
  return undefined;
}

function lastLine(log: string): string {
  const lines = readFileSync(log, "utf8").trim().split("\n");
  return lines.at(-1) ?? "";
}
