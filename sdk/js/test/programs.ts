// Builds and starts the programs of the project.

import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

export const ROOT = resolve(import.meta.dirname, "../../..");
/** Seconds a daemon lives if the test does not end it. */
const SERVE_AT_MOST = "600";

/** Builds a program of the module, unless test.sh has; the Go cache makes that quick. */
export function build(name: string, from: string): string {
  const target = join(ROOT, "bin", "js", name);
  if (process.env["CKPTD_JS_BUILT"] === undefined) {
    const env = { ...process.env, CGO_ENABLED: "0" };
    execFileSync("go", ["build", "-o", target, from], { cwd: ROOT, env });
  }
  return target;
}

/** A running daemon and its addresses. */
export interface Daemon {
  readonly folder: string;
  readonly socket: string;
  readonly tcp: string;
  /** The certificate authority, with TLS. */
  readonly ca: string;
  /** The first token: a writer for user local of tenant default. */
  readonly token: string;
  /** Ends it, and removes its data. */
  stop(): Promise<void>;
  /** Kills it and starts it again on the same data and socket. */
  restart(): Promise<void>;
}

/** Runs a daemon on a socket and on TCP. */
export async function serve(options: { tls?: boolean; flags?: string[] } = {}): Promise<Daemon> {
  const program = build("ckptd", "./cmd/ckptd");
  const folder = mkdtempSync(join(tmpdir(), "ckptd-js-")); // short: a socket's path is limited
  const flags = [...(options.flags ?? [])];
  const ca = options.tls ? certificate(folder) : "";
  if (options.tls) {
    flags.push("--cert", join(folder, "cert.pem"), "--cert-key", join(folder, "key.pem"));
  }
  let running = await start(program, folder, flags);
  let restarts = Promise.resolve();
  return {
    folder,
    socket: `unix://${folder}/data.sock`,
    get tcp() {
      return running.tcp; // another port after a restart
    },
    ca,
    token: readFileSync(join(folder, "data.token"), "utf8").trim(),
    async stop() {
      await end(running.process, "SIGTERM");
      rmSync(folder, { recursive: true, force: true });
    },
    restart() {
      restarts = restarts.then(async () => {
        await end(running.process, "SIGKILL");
        running = await start(program, folder, flags);
      });
      return restarts;
    },
  };
}

async function start(
  program: string,
  folder: string,
  flags: string[],
): Promise<{ process: ChildProcess; tcp: string }> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await startOnce(program, folder, flags);
    } catch (e) {
      if (attempt === 10) throw e; // the one that was killed can still hold the store
      await new Promise((done) => setTimeout(done, 50 * attempt));
    }
  }
}

function startOnce(
  program: string,
  folder: string,
  flags: string[],
): Promise<{ process: ChildProcess; tcp: string }> {
  const args = ["-k", "5", SERVE_AT_MOST, program, "serve", "--data", join(folder, "data")];
  // A group of its own, so that timeout and the daemon end together.
  const child = spawn("timeout", [...args, "--listen", "127.0.0.1:0", ...flags], {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  let said = "";
  return new Promise((done, fail) => {
    child.stderr.on("data", (data: Buffer) => (said += data.toString()));
    child.stdout.on("data", (data: Buffer) => {
      said += data.toString();
      const tcp = /address (https?:\/\/\S+)/.exec(said)?.[1];
      if (tcp !== undefined && /^ {2}curl.*\/Load/m.test(said)) done({ process: child, tcp });
    });
    child.on("exit", () => fail(new Error(`no daemon: ${said}`)));
  });
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const exited = new Promise((done) => child.once("exit", done));
  process.kill(-child.pid, signal);
  await exited;
}

/** Makes an authority and a certificate of it for this machine, and returns the authority's file. */
function certificate(folder: string): string {
  const openssl = (...args: string[]): void => {
    execFileSync("openssl", args, { cwd: folder, stdio: "ignore" });
  };
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  const names = "subjectAltName=IP:127.0.0.1,DNS:localhost";
  openssl("req", "-x509", ...key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test", "-days", "2");
  openssl("req", "-x509", ...key, "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost",
    "-days", "2", "-addext", names, "-CA", "ca.pem", "-CAkey", "ca.key");
  return join(folder, "ca.pem");
}
