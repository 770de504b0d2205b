// The options of a client, from arguments and the environment.

import { readFileSync } from "node:fs";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { InvalidError, type CkptdError } from "./errors.js";
import type { Policy } from "./retry.js";

export const VERSION = "0.1.0";

const FORMS = "unix:///path/to/socket, http://host:port or https://host:port";

/**
 * Options of a client. They default to the environment variables of the `ckptd` command:
 * CKPTD_SERVER, CKPTD_TOKEN, CKPTD_TOKEN_FILE, CKPTD_TENANT, CKPTD_USER, CKPTD_TLS_CA,
 * CKPTD_TLS_CERT and CKPTD_TLS_KEY. All times are in milliseconds.
 */
export interface ClientOptions {
  readonly token?: string | undefined;
  /** A file with the token; it takes precedence over CKPTD_TOKEN. */
  readonly tokenFile?: string | undefined;
  /** Default: the token's or certificate's own; without credentials "default". */
  readonly tenant?: string | undefined;
  /** Default: the token's or certificate's own; without credentials "local". */
  readonly user?: string | undefined;
  /** PEM files. */
  readonly tlsCa?: string | undefined;
  readonly tlsCert?: string | undefined;
  readonly tlsKey?: string | undefined;
  /** The most attempts at a call, or at a stream without progress. Default 10. */
  readonly attempts?: number | undefined;
  /** The longest wait before the second attempt; it doubles up to maxBackoff. Default 50. */
  readonly backoff?: number | undefined;
  /** Default 5,000. */
  readonly maxBackoff?: number | undefined;
  /** The longest that an attempt at a call with a single answer takes; 0 is no limit. Default 60,000. */
  readonly timeout?: number | undefined;
  /** Default 5,000. */
  readonly connectTimeout?: number | undefined;
  /** A watch connects again after three heartbeats of silence. Default 15,000. */
  readonly heartbeat?: number | undefined;
  /** Gets the error and the length of each wait. */
  readonly onRetry?: ((error: CkptdError, wait: number) => void) | undefined;
  /** Marks every load as an export in the audit log. */
  readonly export?: boolean | undefined;
  /** The daemon makes the ids of drafts: saves are not repeated after a lost answer. */
  readonly serverIds?: boolean | undefined;
  /** The most bytes of contents that all sessions keep. Default 64 MiB. */
  readonly cacheBytes?: number | undefined;
}

/** Where the daemon listens. */
export interface Address {
  readonly url: string;
  /** Path of a Unix socket. */
  readonly path?: string;
  readonly host?: string;
  readonly port?: number;
  readonly secure: boolean;
}

/** The complete options of a client. */
export interface Options {
  readonly address: Address;
  readonly tls: SecureContextOptions;
  readonly token: string;
  readonly tenant: string;
  readonly user: string;
  readonly policy: Policy;
  readonly timeout: number;
  readonly connectTimeout: number;
  readonly heartbeat: number;
  readonly onRetry: ((error: CkptdError, wait: number) => void) | undefined;
  readonly export: boolean;
  readonly serverIds: boolean;
  readonly cacheBytes: number;
}

function env(name: string): string {
  return process.env[`CKPTD_${name}`] ?? "";
}

/** Completes and checks the options of a client. */
export function complete(url: string | undefined, o: ClientOptions): Options {
  const { attempts = 10, backoff = 50, maxBackoff = 5_000, cacheBytes = 64 << 20 } = o;
  const { timeout = 60_000, connectTimeout = 5_000, heartbeat = 15_000 } = o;
  if (!(attempts >= 1 && backoff >= 0 && maxBackoff >= 0 && cacheBytes >= 0 && timeout >= 0)) {
    throw new InvalidError("attempts must be at least 1, and no option negative");
  }
  if (!(connectTimeout > 0 && heartbeat >= 1_000)) {
    throw new InvalidError("connectTimeout must be positive, and heartbeat at least 1,000");
  }
  const tls = tlsFiles(o);
  const token = tokenOf(o);
  // Credentials for exactly one tenant and user imply both names. Without any, as for the owner of
  // a socket, the defaults are those of the `ckptd` command.
  const anonymous = token === "" && tls.cert === undefined;
  return {
    address: addressOf(url || env("SERVER")),
    tls,
    token,
    tenant: o.tenant ?? (env("TENANT") || (anonymous ? "default" : "")),
    user: o.user ?? (env("USER") || (anonymous ? "local" : "")),
    policy: { attempts, backoff, maxBackoff: Math.max(maxBackoff, backoff) },
    timeout,
    connectTimeout,
    heartbeat,
    onRetry: o.onRetry,
    export: o.export ?? false,
    serverIds: o.serverIds ?? false,
    cacheBytes,
  };
}

function addressOf(url: string): Address {
  if (url === "") throw new InvalidError(`no address: pass a URL or set CKPTD_SERVER: ${FORMS}`);
  const wrong = new InvalidError(`"${url}" is not an address: want ${FORMS}`);
  if (url.startsWith("unix:")) {
    const path = url.replace(/^unix:(\/\/)?/, "");
    if (path === "") throw wrong;
    // Node.js would cut it.
    const longest = process.platform === "linux" ? 107 : 103;
    if (process.platform !== "win32" && Buffer.byteLength(path) > longest) {
      throw new InvalidError(`the path of a socket has at most ${longest} bytes: ${path}`);
    }
    return { url, path, secure: false };
  }
  let parts: URL;
  try {
    parts = new URL(url);
  } catch {
    throw wrong;
  }
  const extra = parts.pathname.replaceAll("/", "") + parts.search + parts.hash + parts.username;
  const secure = parts.protocol === "https:";
  if ((!secure && parts.protocol !== "http:") || parts.hostname === "" || extra !== "") throw wrong;
  const port = parts.port === "" ? (secure ? 443 : 80) : Number(parts.port);
  return { url, host: parts.hostname.replace(/^\[(.*)\]$/, "$1"), port, secure };
}

function tlsFiles(o: ClientOptions): SecureContextOptions {
  const ca = o.tlsCa ?? env("TLS_CA");
  const cert = o.tlsCert ?? env("TLS_CERT");
  const key = o.tlsKey ?? env("TLS_KEY");
  if ((cert === "") !== (key === "")) throw new InvalidError("tlsCert and tlsKey go together");
  const files: SecureContextOptions = {};
  try {
    if (ca !== "") files.ca = readFileSync(ca);
    if (cert !== "") {
      files.cert = readFileSync(cert);
      files.key = readFileSync(key);
    }
    if (ca !== "" || cert !== "") createSecureContext(files);
  } catch (e) {
    const names = [ca, cert, key].filter((f) => f !== "").join(" ");
    throw new InvalidError(`the TLS files ${names} cannot be used: ${(e as Error).message}`);
  }
  return files;
}

function tokenOf(o: ClientOptions): string {
  let token = o.token;
  const file = o.tokenFile || (token === undefined ? env("TOKEN_FILE") : "");
  if (token === undefined && file !== "") {
    try {
      token = readFileSync(file, "utf8").trim();
    } catch (e) {
      throw new InvalidError(`the token file cannot be read: ${(e as Error).message}`);
    }
    if (token === "") throw new InvalidError(`the token file ${file} is empty`);
  }
  token ??= env("TOKEN");
  if (/[^!-~]/.test(token)) {
    throw new InvalidError("the token contains blanks or control characters");
  }
  return token;
}
