// Single attempts at calls, over the HTTP/1.1 client of Node.js.

import * as http from "node:http";
import * as https from "node:https";
import type { Socket } from "node:net";
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { VERSION, type Options } from "./config.js";
import { check, decode, envelope, Envelopes, refusal, STREAM, UNARY } from "./connect.js";
import { Broken, Expired, Failure } from "./failures.js";

// The most idle connections, and their longest idle time: less than the daemon's.
const POOL = 512;
const IDLE = 60_000;
// The size of the pieces that a large request is sent in. The client looks for an answer between
// them, because the daemon refuses a request that is too large before it has read all of it.
const PIECE = 256 << 10;
// Up to this size, a body is sent as a string: Node.js joins it with the head, and writes both at once.
const SMALL = 64 << 10;

/** An attempt in progress. */
interface Exchange {
  readonly request: http.ClientRequest;
  /** Resolves with the head of the answer, and rejects with a Failure. */
  readonly head: Promise<http.IncomingMessage>;
  /** Returns the Failure for an error on the connection. */
  readonly failure: (e: Error) => Failure;
  /** Fails the attempt unless disarm comes in time; 0 is no limit. */
  readonly arm: (ms: number) => void;
  readonly disarm: () => void;
}

/** Makes attempts at calls, over one pool of connections. */
export class Wire {
  closed = false;
  private readonly agent: http.Agent;
  private readonly target: https.RequestOptions;
  private readonly unaryHeaders: readonly string[];
  private readonly streamHeaders: readonly string[];

  constructor(private readonly options: Options) {
    const { address, tls } = options;
    const pool = { keepAlive: true, maxFreeSockets: POOL, timeout: IDLE, scheduling: "lifo" } as const;
    this.agent = address.secure ? new https.Agent({ ...pool, ...tls }) : new http.Agent(pool);
    this.target =
      address.path === undefined
        ? { host: address.host, port: address.port }
        : { socketPath: address.path };
    const timeout = options.timeout > 0 ? ["Connect-Timeout-Ms", String(Math.ceil(options.timeout))] : [];
    this.unaryHeaders = this.headers(UNARY, timeout);
    this.streamHeaders = this.headers(STREAM, []);
  }

  private headers(contentType: string, more: string[]): string[] {
    const { host, port } = this.options.address;
    const name = host?.includes(":") ? `[${host}]` : host;
    const headers = ["Host", name === undefined ? "localhost" : `${name}:${port}`];
    headers.push("User-Agent", `ckptd-js/${VERSION}`, "Connect-Protocol-Version", "1");
    headers.push("Content-Type", contentType, ...more);
    if (this.options.token !== "") headers.push("Authorization", `Bearer ${this.options.token}`);
    return headers;
  }

  /** Ends all attempts. */
  close(): void {
    this.closed = true;
    this.agent.destroy();
  }

  /** Makes an attempt at a call with a single answer. */
  async unary<O extends DescMessage>(
    path: string,
    body: Uint8Array,
    answer: O,
  ): Promise<MessageShape<O>> {
    const x = this.begin(path, this.unaryHeaders, body.length);
    x.arm(this.options.timeout);
    try {
      if (body.length <= SMALL) x.request.end(latin1(body), "latin1");
      else await sendPieces(x, body);
      const res = await x.head;
      const content = await whole(x, res);
      const type = res.headers["content-type"] ?? "";
      if (res.statusCode !== 200) throw refusal(res.statusCode ?? 0, type, content);
      check(200, type, false);
      return decode(content, answer);
    } finally {
      x.disarm();
      if (!x.request.writableFinished) x.request.destroy();
    }
  }

  /**
   * Starts an attempt at a call whose answer is a stream. Throws Expired if the head of the answer
   * takes longer than patience, unless that is 0.
   */
  async stream<O extends DescMessage>(
    path: string,
    body: Uint8Array,
    answer: O,
    patience: number,
  ): Promise<Answers<O>> {
    const message = envelope(body);
    const x = this.begin(path, this.streamHeaders, message.length);
    const answers = new Answers(x, answer);
    x.arm(patience);
    x.request.end(message);
    await answers.begin();
    return answers;
  }

  /** Starts an attempt at a call whose request is a stream. */
  upload<O extends DescMessage>(path: string, answer: O): Upload<O> {
    return new Upload(this.begin(path, this.streamHeaders, undefined), answer);
  }

  private begin(path: string, headers: readonly string[], length: number | undefined): Exchange {
    if (this.closed) throw new Broken("the client is closed", false);
    const sized = length === undefined ? ["Transfer-Encoding", "chunked"] : ["Content-Length", String(length)];
    const { agent, target } = this;
    const all = [...headers, ...sized];
    const make = this.options.address.secure ? https.request : http.request;
    // An array of headers goes on the wire as it is.
    const request = make({ ...target, agent, method: "POST", path, headers: all as never });
    return exchange(request, this.options);
  }
}

function exchange(request: http.ClientRequest, options: Options): Exchange {
  let connected = false;
  let late: Failure | undefined;
  let timer: NodeJS.Timeout | undefined;
  const expire = (why: Failure): void => {
    late ??= why;
    request.destroy(why);
  };
  const failure = (e: Error): Failure => {
    if (late !== undefined) return late;
    if (e instanceof Failure) return e;
    return new Broken(e.message, connected, !connected && isFinal(e));
  };
  request.once("socket", (socket: Socket) => {
    if (!socket.connecting) {
      connected = true;
      return;
    }
    const tooLong = (): void => expire(new Broken("connecting took too long", false));
    const connecting = setTimeout(tooLong, options.connectTimeout);
    request.once("close", () => clearTimeout(connecting));
    socket.once(options.address.secure ? "secureConnect" : "connect", () => {
      clearTimeout(connecting);
      connected = true;
      if (!options.address.path) socket.setKeepAlive(true, 15_000);
    });
  });
  const head = new Promise<http.IncomingMessage>((resolve, reject) => {
    request.once("response", resolve);
    request.on("error", (e) => reject(failure(e)));
  });
  head.catch(() => {}); // whoever awaits it gets the error
  const disarm = (): void => clearTimeout(timer);
  const arm = (ms: number): void => {
    clearTimeout(timer);
    if (ms > 0) timer = setTimeout(() => expire(new Expired("no answer in time")), ms);
  };
  return { request, head, failure, arm, disarm };
}

// Another attempt does not help against an untrusted certificate.
function isFinal(e: Error & { code?: string; syscall?: string }): boolean {
  return e.syscall === undefined && e.code !== undefined && /CERT|SIGNED|SIGNATURE|^ERR_TLS/.test(e.code);
}

/** Sends a large body, unless the daemon answers or hangs up first. */
async function sendPieces(x: Exchange, body: Uint8Array): Promise<void> {
  let answered = false;
  const done = x.head.then(
    () => void (answered = true),
    () => void (answered = true),
  );
  for (let at = 0; at < body.length && !answered; at += PIECE) {
    const wrote = x.request.write(body.subarray(at, at + PIECE));
    if (!wrote) await Promise.race([drained(x.request), done]);
  }
  if (!answered) x.request.end();
}

function drained(request: http.ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      request.off("drain", done).off("close", done);
      resolve();
    };
    request.on("drain", done).on("close", done);
  });
}

function latin1(body: Uint8Array): string {
  return Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("latin1");
}

/** Returns the whole body of an answer. */
function whole(x: Exchange, res: http.IncomingMessage): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    res.on("data", (data: Buffer) => parts.push(data));
    res.on("end", () => {
      const [first] = parts;
      resolve(plain(parts.length === 1 && first !== undefined ? first : Buffer.concat(parts)));
    });
    res.on("error", (e) => reject(x.failure(e)));
    res.on("close", () => {
      if (!res.readableEnded) reject(x.failure(new Error("the answer breaks off")));
    });
  });
}

function plain(data: Buffer): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/** The messages of a streamed answer. */
export class Answers<O extends DescMessage> {
  private readonly envelopes = new Envelopes();
  private chunks: AsyncIterator<Buffer> | undefined;
  private over = false;

  constructor(
    private readonly x: Exchange,
    private readonly answer: O,
  ) {}

  /** Reads the head of the answer. */
  async begin(): Promise<void> {
    try {
      const res = await this.x.head;
      const type = res.headers["content-type"] ?? "";
      if (res.statusCode !== 200) throw refusal(res.statusCode ?? 0, type, await whole(this.x, res));
      check(200, type, true);
      this.chunks = res[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    } catch (e) {
      this.close();
      throw e;
    } finally {
      this.x.disarm();
    }
  }

  /**
   * Returns the next message, or undefined at the end. Throws Expired after patience milliseconds
   * of silence, unless that is 0.
   */
  async receive(patience = 0): Promise<MessageShape<O> | undefined> {
    for (;;) {
      const message = this.envelopes.next();
      if (message !== undefined) return decode(message, this.answer);
      if (this.over) return undefined;
      const chunk = await this.chunk(patience);
      if (chunk !== undefined) {
        this.envelopes.feed(plain(chunk));
      } else if (this.envelopes.ended) {
        this.over = true;
      } else {
        throw new Broken("the stream breaks off", true);
      }
    }
  }

  private async chunk(patience: number): Promise<Buffer | undefined> {
    this.x.arm(patience);
    try {
      const next = await this.chunks?.next();
      return next === undefined || next.done ? undefined : next.value;
    } catch (e) {
      throw this.x.failure(e as Error);
    } finally {
      this.x.disarm();
    }
  }

  /** Reads to the end, which must be near, so that the connection can be used again. */
  async finish(): Promise<void> {
    try {
      await this.receive(1_000);
    } catch (e) {
      if (!(e instanceof Failure)) throw e;
    } finally {
      this.close();
    }
  }

  /** Abandons the rest of the answer. */
  close(): void {
    this.x.disarm();
    if (!this.over) {
      this.over = true;
      this.x.request.destroy();
    }
  }
}

/** A streamed request with a single answer. */
export class Upload<O extends DescMessage> {
  private answered = false;
  private readonly answers: Answers<O>;
  private readonly head: Promise<void>;

  constructor(
    private readonly x: Exchange,
    answer: O,
  ) {
    this.answers = new Answers(x, answer);
    const done = (): void => void (this.answered = true);
    this.head = x.head.then(done, done);
  }

  /** Sends a message, and returns false if the daemon has already answered or hung up. */
  async send(message: Uint8Array): Promise<boolean> {
    if (this.answered) return false;
    const wrote = this.x.request.write(envelope(message));
    if (!wrote) await Promise.race([drained(this.x.request), this.head]);
    return !this.answered;
  }

  /** Ends the request and returns the answer. */
  async end(): Promise<MessageShape<O>> {
    if (!this.answered) this.x.request.end();
    await this.answers.begin();
    const message = await this.answers.receive();
    if (message === undefined) throw new Broken("the answer is missing", true);
    await this.answers.finish();
    return message;
  }

  /** Abandons the request. */
  close(): void {
    this.answers.close();
  }
}

