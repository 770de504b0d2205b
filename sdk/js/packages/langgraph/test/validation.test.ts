// LangGraph's validation suite for checkpointers, on the Unix socket and by TCP with token and TLS.

import { deltaChannelHistoryTests, validate } from "@langchain/langgraph-checkpoint-validation";
import { Client } from "@ckptd/client";
import { CkptdSaver } from "@ckptd/langgraph";
import { serve, type Daemon } from "../../../test/programs.js";

let daemon: Daemon;
let hooked: Daemon;
let owner: Client;
let users = 0;

beforeAll(async () => {
  daemon = await serve({ tls: true });
  owner = new Client(daemon.socket);
  hooked = await serve();
  const client = new Client(hooked.socket);
  await client.plugins.installPlugin({ builtin: "redact" });
  const files = [{ path: "suite/0002_nothing.jq", data: Buffer.from(".") }];
  await client.migrations.installMigrationSets({ tenant: "default", files });
  client.close();
});
afterAll(async () => {
  owner.close();
  await daemon.stop();
  await hooked.stop();
});

/** A saver for a user of its own starts empty, as the suite wants. */
function onSocket(): CkptdSaver {
  return new CkptdSaver(daemon.socket, { user: `user-${++users}` });
}

async function byTcp(): Promise<CkptdSaver> {
  const grants = [{ role: "writer", tenant: "default", user: `user-${++users}` }];
  const { secret } = await owner.admin.createToken({ grants });
  return CkptdSaver.fromConnString(daemon.tcp, { token: secret, tlsCa: daemon.ca });
}

const sockets = {
  checkpointerName: "CkptdSaver on a socket",
  createCheckpointer: onSocket,
  destroyCheckpointer: (saver: CkptdSaver) => saver.close(),
};
/** With a redactor and a migration, which neither changes what the suite saves. */
const hooks = {
  checkpointerName: "CkptdSaver with a redactor and a migration",
  createCheckpointer: () =>
    new CkptdSaver(hooked.socket, { user: `user-${++users}`, kind: "suite", schemaVersion: 2 }),
  destroyCheckpointer: (saver: CkptdSaver) => saver.close(),
};
const tcp = {
  checkpointerName: "CkptdSaver by TCP with token and TLS",
  createCheckpointer: byTcp,
  destroyCheckpointer: (saver: CkptdSaver) => saver.close(),
};

for (const way of [sockets, tcp, hooks]) {
  validate(way);
  deltaChannelHistoryTests(way);
}
