// The Connect protocol over HTTP/1.1 with protobuf bodies, without I/O.
//
// Messages are not compressed: close to the daemon, compressing costs more time than it saves.

import { fromBinary, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { Foreign, Refused } from "./failures.js";
import { ErrorDetailSchema, type ErrorDetail } from "./gen/ckptd/v1/types_pb.js";

export const UNARY = "application/proto";
export const STREAM = "application/connect+proto";

const HEAD = 5;
const COMPRESSED = 1;
const END = 2;

// RPC codes for HTTP statuses of answers that are not Connect's: from a proxy or another server.
const CODES: Record<number, string> = {
  400: "internal",
  401: "unauthenticated",
  403: "permission_denied",
  404: "unimplemented",
  429: "unavailable",
  502: "unavailable",
  503: "unavailable",
  504: "unavailable",
};

/** Returns a message of a stream in its envelope. */
export function envelope(message: Uint8Array): Uint8Array {
  const out = new Uint8Array(HEAD + message.length);
  new DataView(out.buffer).setUint32(1, message.length);
  out.set(message, HEAD);
  return out;
}

/** Returns the message in body. */
export function decode<S extends DescMessage>(body: Uint8Array, schema: S): MessageShape<S> {
  try {
    return fromBinary(schema, body);
  } catch (e) {
    throw new Foreign("internal", `an answer that is not a ${schema.name}: ${String(e)}`);
  }
}

/** Throws Foreign unless the content type of an answer with status 200 is the daemon's. */
export function check(status: number, contentType: string, streams: boolean): void {
  if (mediaType(contentType) !== (streams ? STREAM : UNARY)) {
    throw new Foreign("unknown", `HTTP status ${status} with content type "${contentType}"`);
  }
}

/** Returns the error in the body of an answer whose status is not 200. */
export function refusal(status: number, contentType: string, body: Uint8Array): Refused | Foreign {
  if (mediaType(contentType) === "application/json") {
    const error = errorOf(parse(body));
    if (error !== undefined) return error;
  }
  return new Foreign(CODES[status] ?? "unknown", `HTTP status ${status}`);
}

function mediaType(contentType: string): string {
  return (contentType.split(";", 1)[0] ?? "").trim();
}

function parse(body: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(body).toString("utf8"));
  } catch {
    return undefined;
  }
}

interface WireError {
  code?: unknown;
  message?: unknown;
  details?: { type?: unknown; value?: unknown }[];
}

function errorOf(value: unknown): Refused | undefined {
  const error = value as WireError | null | undefined;
  if (typeof error?.code !== "string") return undefined;
  const message = typeof error.message === "string" ? error.message : "";
  return new Refused(error.code, message, detailOf(error));
}

function detailOf(error: WireError): ErrorDetail | undefined {
  for (const d of Array.isArray(error.details) ? error.details : []) {
    if (d?.type !== ErrorDetailSchema.typeName || typeof d.value !== "string") continue;
    try {
      return fromBinary(ErrorDetailSchema, new Uint8Array(Buffer.from(d.value, "base64")));
    } catch {
      continue;
    }
  }
  return undefined;
}

/** Extracts the messages of a stream from their envelopes. */
export class Envelopes {
  private parts: Uint8Array[] = [];
  private size = 0;
  /** The last envelope has arrived. */
  ended = false;

  /** Adds received bytes. */
  feed(data: Uint8Array): void {
    this.parts.push(data);
    this.size += data.length;
  }

  /** Returns the next message, or undefined if it is incomplete or the stream has ended. */
  next(): Uint8Array | undefined {
    if (this.ended || this.size < HEAD) return undefined;
    const head = this.peek(HEAD);
    const flags = head[0] ?? 0;
    const length = new DataView(head.buffer, head.byteOffset).getUint32(1);
    if (this.size < HEAD + length) return undefined;
    const message = this.peek(HEAD + length).subarray(HEAD, HEAD + length);
    this.skip(HEAD + length);
    if (flags & COMPRESSED) {
      throw new Foreign("internal", "a compressed message, which the client did not ask for");
    }
    if (!(flags & END)) return message;
    this.ended = true;
    const end = parse(message) as { error?: unknown } | null | undefined;
    if (end === undefined || end === null) {
      throw new Foreign("internal", "the end of the stream cannot be read");
    }
    const error = errorOf(end.error);
    if (error !== undefined) throw error;
    return undefined;
  }

  /** Returns at least n received bytes in one piece. */
  private peek(n: number): Uint8Array {
    if ((this.parts[0]?.length ?? 0) < n) {
      const whole = new Uint8Array(this.size);
      let at = 0;
      for (const part of this.parts) {
        whole.set(part, at);
        at += part.length;
      }
      this.parts = [whole];
    }
    return this.parts[0] as Uint8Array;
  }

  private skip(n: number): void {
    this.size -= n;
    const rest = (this.parts.shift() as Uint8Array).subarray(n);
    if (rest.length > 0) this.parts.unshift(rest);
  }
}
