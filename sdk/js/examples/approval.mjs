// An agent that waits for approval, is killed, and continues in another process. Then it is rewound
// to the question and forked with another answer.
//
// Run it with `node examples/approval.mjs [FOLDER]`. It starts a daemon for the store in FOLDER.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Annotation, Command, END, interrupt, START, StateGraph } from "@langchain/langgraph";
import { CkptdSaver } from "@ckptd/langgraph";

const [, , folder = "./data", part] = process.argv;
const config = { configurable: { thread_id: `refund-${process.env.REFUND ?? process.pid}` } };

const State = Annotation.Root({
  log: Annotation({ reducer: (old, more) => [...old, ...more], default: () => [] }),
});

async function agent() {
  return new StateGraph(State)
    .addNode("research", () => ({ log: ["order 17 arrived broken"] }))
    .addNode("approve", () => ({ log: [`refund of 40 EUR: ${interrupt("refund 40 EUR?")}`] }))
    .addNode("reply", ({ log }) => ({ log: [`told the customer: ${log.at(-1)}`] }))
    .addEdge(START, "research")
    .addEdge("research", "approve")
    .addEdge("approve", "reply")
    .addEdge("reply", END)
    .compile({ checkpointer: await CkptdSaver.local(folder) });
}

async function question() {
  await (await agent()).invoke({ log: ["where is my money?"] }, config);
  console.log("waits for approval");
  setInterval(() => {}, 1_000); // until it is killed
}

async function answer() {
  const graph = await agent();
  const { tasks } = await graph.getState(config);
  console.log(`another process finds the question: ${tasks[0].interrupts[0].value}`);
  console.log((await graph.invoke(new Command({ resume: "yes" }), config)).log.at(-1));

  let asked;
  for await (const state of graph.getStateHistory(config)) {
    if (state.next[0] === "approve") asked = state;
  }
  const fork = await graph.updateState(asked.config, null, "__copy__");
  console.log("rewound to the question, and forked");
  console.log((await graph.invoke(new Command({ resume: "no" }), fork)).log.at(-1));
}

if (part === "question") {
  await question();
} else if (part === "answer") {
  await answer();
} else {
  const run = (name) =>
    spawn(process.execPath, [fileURLToPath(import.meta.url), folder, name], {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, REFUND: String(process.pid) },
    });
  const first = run("question");
  await once(first.stdout.on("data", (text) => process.stdout.write(text)), "data");
  first.kill("SIGKILL");
  await once(first, "exit");
  console.log("killed");
  const second = run("answer");
  second.stdout.pipe(process.stdout);
  const [code] = await once(second, "exit");
  process.exitCode = code ?? 1;
}
