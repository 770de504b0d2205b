// Services of the API, with a function for each method.

import type {
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import type { Caller } from "./calls.js";

/**
 * A service of the API. Methods with a single answer return a promise; those with a streamed answer
 * return a generator.
 */
export type Service<S extends DescService> = {
  readonly [K in keyof S["method"] as S["method"][K] extends { methodKind: "unary" | "server_streaming" }
    ? K
    : never]: S["method"][K] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageInitShape<I>) => Promise<MessageShape<O>>
    : S["method"][K] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageInitShape<I>) => AsyncGenerator<MessageShape<O>, void, undefined>
      : never;
};

/** Returns the functions of a service. */
export function service<S extends DescService>(caller: Caller, desc: S): Service<S> {
  const out: Record<string, unknown> = {};
  for (const method of desc.methods) {
    if (method.methodKind === "unary") {
      out[method.localName] = (request: Record<string, unknown>) => caller.call(method as DescMethodUnary, request);
    } else if (method.methodKind === "server_streaming") {
      out[method.localName] = (request: Record<string, unknown>) =>
        caller.messages(method as DescMethodServerStreaming, request);
    }
  }
  return out as Service<S>;
}
