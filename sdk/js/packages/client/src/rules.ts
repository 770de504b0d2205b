// The methods of the API with their rules: the option ckptd.v1.rule in the .proto files.

import { getOption, type DescField, type DescMethod, type DescService, type Message } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import { AdminService } from "./gen/ckptd/v1/admin_service_pb.js";
import { BlobService } from "./gen/ckptd/v1/blob_service_pb.js";
import { CheckpointService } from "./gen/ckptd/v1/checkpoint_service_pb.js";
import { MigrationService } from "./gen/ckptd/v1/migration_service_pb.js";
import { PluginService } from "./gen/ckptd/v1/plugin_service_pb.js";
import { Retry, rule as ruleOption } from "./gen/ckptd/v1/rule_pb.js";
import { ThreadService } from "./gen/ckptd/v1/thread_service_pb.js";

/** Whether a request can be repeated: SAME_ID is resolved by the ids in the request. */
export type May = Retry.READ | Retry.REPEAT | Retry.NEVER;

/** The parts of a method's rule that a client needs. */
export interface Rule {
  readonly path: string;
  readonly retry: Retry;
  /** Path of the field with the id, for SAME_ID. */
  readonly id: readonly string[];
  readonly endless: boolean;
}

const services: readonly DescService[] = [
  AdminService,
  BlobService,
  CheckpointService,
  MigrationService,
  PluginService,
  ThreadService,
];

const rules = new Map<DescMethod, Rule>();

for (const service of services) {
  for (const method of service.methods) {
    const rule = getOption(method, ruleOption);
    // The client never guesses about retries.
    if (rule.retry === Retry.UNSPECIFIED) {
      throw new TypeError(`${service.typeName}/${method.name} has no rule`);
    }
    rules.set(method, {
      path: `/${service.typeName}/${method.name}`,
      retry: rule.retry,
      id: rule.id === "" ? [] : rule.id.split("."),
      endless: rule.endless,
    });
  }
}

/** Returns the rule of a method of the API. */
export function ruleOf(method: DescMethod): Rule {
  const rule = rules.get(method);
  if (rule === undefined) throw new TypeError(`${method.name} is not a method of ckptd.v1`);
  return rule;
}

/** Returns whether a request can be repeated. */
export function retryFor(method: DescMethod, request: Message): May {
  const rule = ruleOf(method);
  if (rule.retry !== Retry.SAME_ID) return rule.retry as May;
  return setEverywhere(method, request, rule.id) ? Retry.REPEAT : Retry.NEVER;
}

function setEverywhere(method: DescMethod, request: Message, path: readonly string[]): boolean {
  let messages = [reflect(method.input, request)];
  for (const [i, name] of path.entries()) {
    const next: typeof messages = [];
    for (const m of messages) {
      const field = m.fields.find((f) => f.name === name);
      if (field === undefined) throw new TypeError(`${m.desc.typeName} has no field ${name}`);
      if (i === path.length - 1) {
        if (!m.isSet(field)) return false;
      } else {
        next.push(...inner(m, field));
      }
    }
    messages = next;
  }
  return true;
}

function inner(m: ReturnType<typeof reflect>, field: DescField): ReturnType<typeof reflect>[] {
  if (field.fieldKind === "message") return [m.get(field)];
  if (field.fieldKind === "list" && field.listKind === "message") {
    return [...m.get(field)] as ReturnType<typeof reflect>[];
  }
  throw new TypeError(`${m.desc.typeName}.${field.name} is not a message`);
}
