// Calls with retries, and lists that resume after a broken connection.

import {
  create,
  toBinary,
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type Message,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { Cache } from "./cache.js";
import type { Options } from "./config.js";
import { InvalidError, UnavailableError } from "./errors.js";
import { Broken, Failure } from "./failures.js";
import { IdClock } from "./ids.js";
import { Retry } from "./retry.js";
import { retryFor, ruleOf } from "./rules.js";
import { Wire, type Answers } from "./wire.js";

/** Makes calls. All handles of a client share one. */
export class Caller {
  readonly wire: Wire;
  readonly ids = new IdClock();
  readonly cache: Cache;

  constructor(readonly options: Options) {
    this.wire = new Wire(options);
    this.cache = new Cache(options.cacheBytes);
  }

  /** Returns an id for a draft, or none if the daemon makes them (serverIds). */
  newId(): string {
    return this.options.serverIds ? "" : this.ids.next();
  }

  /** Makes a call with a single answer. */
  async call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    const message = create(method.input, request);
    const body = encode(method.input, message);
    const { path } = ruleOf(method);
    const retry = this.retry(method, message as Message);
    for (;;) {
      retry.check();
      let wait: number;
      try {
        return await this.wire.unary(path, body, method.output);
      } catch (e) {
        if (!(e instanceof Failure)) throw e;
        wait = retry.failed(e);
      }
      await this.pause(retry, wait);
    }
  }

  /** Starts the attempts at a call. */
  retry(method: Parameters<typeof retryFor>[0], request: Message): Retry {
    const { policy, address } = this.options;
    return new Retry(policy, retryFor(method, request), address.url, () => this.wire.closed);
  }

  /** Waits before the next attempt. */
  async pause(retry: Retry, wait: number): Promise<void> {
    if (retry.error !== undefined) this.options.onRetry?.(retry.error, wait);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }

  /** Returns the messages of a streamed answer. ask returns the request of each attempt. */
  resumed<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    ask: () => MessageInitShape<I>,
    patience = 0,
  ): Resumed<I, O> {
    return new Resumed(this, method, ask, patience);
  }

  /**
   * Yields the items of a list whose messages carry page tokens. After a broken connection it
   * resumes after the last complete message. ask returns the request for a number of items after a
   * token; 0 means all.
   */
  async *pages<I extends DescMessage, O extends DescMessage, T>(
    method: DescMethodServerStreaming<I, O>,
    ask: (left: number, token: string) => MessageInitShape<I>,
    itemsOf: (m: MessageShape<O>) => readonly [readonly T[], string],
    limit = 0,
  ): AsyncGenerator<T, void, undefined> {
    let token = "";
    let left = limit;
    const stream = this.resumed(method, () => ask(Math.max(left, 0), token));
    try {
      for (let m = await stream.next(); m !== undefined; m = await stream.next()) {
        stream.progress = true;
        let items: readonly T[];
        [items, token] = itemsOf(m);
        const last = token === "" || (limit > 0 && items.length >= left);
        // The last message of a page: read its end while nobody waits for it.
        if (last) await stream.finish();
        for (const item of items) {
          yield item;
          if (--left === 0) return; // never, if there is no limit
        }
        if (last) return;
      }
    } finally {
      stream.close();
    }
  }

  /** Makes a call that streams progress messages, and returns the message that is its result. */
  async last<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    done: (m: MessageShape<O>) => boolean,
    onProgress?: (m: MessageShape<O>) => void,
  ): Promise<MessageShape<O>> {
    let result: MessageShape<O> | undefined;
    for await (const m of this.messages(method, request)) {
      if (done(m)) result = m;
      else onProgress?.(m);
    }
    if (result === undefined) throw new UnavailableError("the daemon sent no report");
    return result;
  }

  /**
   * Yields the messages of a streamed answer. It makes another attempt only before the first
   * message, because the client cannot tell where this list would continue.
   */
  async *messages<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const stream = this.resumed(method, () => request);
    try {
      for (let m = await stream.next(); m !== undefined; m = await stream.next()) {
        stream.once = true;
        yield m;
      }
    } finally {
      stream.close();
    }
  }
}

/** Returns a request as it goes on the wire. */
export function encode<I extends DescMessage>(schema: I, message: MessageShape<I>): Uint8Array {
  try {
    return toBinary(schema, message);
  } catch (e) {
    throw new InvalidError(`the ${schema.name} cannot be encoded: ${(e as Error).message}`);
  }
}

/** The messages of a streamed answer, over all attempts at it. */
export class Resumed<I extends DescMessage, O extends DescMessage> {
  /** Set by the consumer: the current attempt got further, so it does not count. */
  progress = false;
  /** Set by the consumer: make no further attempt. */
  once = false;
  private answers: Answers<O> | undefined;
  private readonly retry: Retry;

  constructor(
    private readonly caller: Caller,
    private readonly method: DescMethodServerStreaming<I, O>,
    private readonly ask: () => MessageInitShape<I>,
    /** Milliseconds of silence before another attempt. */
    private readonly patience: number,
  ) {
    this.retry = caller.retry(method, create(method.input, ask()) as Message);
  }

  /** Returns the next message, or undefined at the end. */
  async next(): Promise<MessageShape<O> | undefined> {
    const { path, endless } = ruleOf(this.method);
    for (;;) {
      this.retry.check();
      let wait: number;
      try {
        if (this.answers === undefined) {
          this.progress = false;
          const body = encode(this.method.input, create(this.method.input, this.ask()));
          const { wire } = this.caller;
          this.answers = await wire.stream(path, body, this.method.output, this.patience);
        }
        const message = await this.answers.receive(this.patience);
        if (message === undefined && endless) throw new Broken("the stream ended", true);
        return message;
      } catch (e) {
        this.close();
        if (!(e instanceof Failure)) throw e;
        wait = this.retry.failed(e, this.progress);
        if (this.once) throw this.retry.error;
      }
      await this.caller.pause(this.retry, wait);
    }
  }

  /** Reads to the end, which must be near, so that the connection can be used again. */
  async finish(): Promise<void> {
    await this.answers?.finish();
    this.answers = undefined;
  }

  /** Abandons the rest of the answer. */
  close(): void {
    this.answers?.close();
    this.answers = undefined;
  }
}
