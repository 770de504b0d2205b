// The parts of the client that need no daemon.

import { createServer, type Server } from "node:http";
import { createServer as createListener, type AddressInfo } from "node:net";
import { randomBytes } from "node:crypto";
import {
  apply,
  asJson,
  Cache,
  Client,
  ClosedError,
  edits,
  InvalidError,
  MAX_EDITS,
  UnreachableError,
} from "@ckptd/client";

describe("edits", () => {
  const base = new Uint8Array(randomBytes(20_000));
  const changed = (at: number[], size: number): Uint8Array => {
    const parts: Uint8Array[] = [];
    let last = 0;
    for (const place of at) {
      parts.push(base.subarray(last, place), new Uint8Array(randomBytes(size)));
      last = place + Math.floor(size / 2);
    }
    return new Uint8Array(Buffer.concat([...parts, base.subarray(last)]));
  };

  test.each([
    ["nothing", base.slice(), 0, 0],
    ["an append", new Uint8Array([...base, 1, 2, 3]), 1, 3],
    ["a header and an append", new Uint8Array([7, ...base.subarray(1), 1, 2, 3]), 2, 4],
    ["three places", changed([100, 9_000, 15_000], 40), 3, 120],
    ["a cut", base.slice(0, 15_000), 1, 0],
    ["all", new Uint8Array(randomBytes(20_000)), 1, 20_000],
    ["everything removed", new Uint8Array(), 1, 0],
  ])("%s", (_, now, most, bytes) => {
    const found = edits(base, now);
    expect(apply(base, found)).toEqual(now);
    expect(found.length).toBeLessThanOrEqual(most);
    expect(found.reduce((n, r) => n + r.data.length, 0)).toBeLessThanOrEqual(bytes);
  });

  test("any contents", () => {
    for (let i = 0; i < 300; i++) {
      const letters = (): Uint8Array => new Uint8Array(randomBytes(i).map((b) => b % 3));
      const [was, now] = [letters(), letters()];
      const found = edits(was, now);
      expect(apply(was, found)).toEqual(now);
      expect(found.length).toBeLessThanOrEqual(MAX_EDITS);
      let end = 0;
      for (const r of found) {
        expect(r.start).toBeGreaterThanOrEqual(end);
        end = r.end;
      }
    }
  });
});

test("the cache is bounded", () => {
  const cache = new Cache(100);
  const of = (n: number) => new Map([["c", { type: "bytes", version: 1n, data: new Uint8Array(n) }]]);
  cache.set("a", of(60));
  cache.set("b", of(30));
  cache.of("a");
  cache.set("c", of(30));
  expect([..."abc"].map((l) => cache.of(l).size)).toEqual([1, 0, 1]);
  cache.set("a", of(101));
  expect(cache.of("a").size).toBe(0);
  expect(cache.size).toBe(30);
});

test("options are checked", () => {
  expect(() => new Client("ftp://x")).toThrow(/want unix:/);
  expect(() => new Client("http://x/path")).toThrow(InvalidError);
  expect(() => new Client("unix:")).toThrow(InvalidError);
  expect(() => new Client(`unix:///tmp/${"x".repeat(200)}.sock`)).toThrow(/at most 10[37] bytes/);
  expect(() => new Client("http://x", { token: "a b" })).toThrow(/blanks/);
  expect(() => new Client("http://x", { tokenFile: "/none" })).toThrow(/cannot be read/);
  expect(() => new Client("https://x", { tlsCert: "a" })).toThrow(/go together/);
  expect(() => new Client("https://x", { tlsCa: "/none" })).toThrow(/cannot be used/);
  expect(() => new Client("http://x", { attempts: 0 })).toThrow(/at least 1/);
  expect(() => new Client()).toThrow(/CKPTD_SERVER/);
  expect(() => asJson(undefined)).toThrow(InvalidError);
  vi.stubEnv("CKPTD_SERVER", "http://[::1]:7420");
  expect(new Client().url).toBe("http://[::1]:7420");
  vi.unstubAllEnvs();
});

async function listening(server: Server): Promise<string> {
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe("servers that are not the daemon", () => {
  const fast = { attempts: 2, backoff: 1, maxBackoff: 1 };

  test("another server", async () => {
    const server = createServer((_, res) => res.end("hello"));
    const client = new Client(await listening(server), fast);
    await expect(client.thread("t").load()).rejects.toThrow(/is not a ckptd daemon/);
    client.close();
    server.close();
  });

  test("one that never answers", async () => {
    const server = createServer(() => {});
    const client = new Client(await listening(server), { ...fast, timeout: 50 });
    await expect(client.thread("t").load()).rejects.toThrow(/no answer in time/);
    client.close();
    server.close();
    server.closeAllConnections();
  });

  test("one that does not finish connecting", async () => {
    const server = createListener(() => {}); // no TLS handshake
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const client = new Client(url, { ...fast, connectTimeout: 50 });
    const failed = expect(client.thread("t").delete()).rejects;
    await failed.toThrow(UnreachableError); // not ambiguous: nothing was sent
    await failed.toThrow(/connecting took too long/);
    client.close();
    server.close();
  });

  test("none", async () => {
    const waits: number[] = [];
    const onRetry = (_: Error, wait: number): void => void waits.push(wait);
    const client = new Client("unix:///nowhere.sock", { attempts: 4, backoff: 8, onRetry });
    await expect(client.thread("t").delete()).rejects.toThrow(UnreachableError);
    expect(waits).toHaveLength(3);
    expect(waits.every((w, i) => w >= 0 && w <= 8 * 2 ** i)).toBe(true);
    client.close();
    await expect(client.thread("t").load()).rejects.toThrow(ClosedError);
  });
});
