// An agent with a fake model, for tests that kill it: `node agent.mjs URL TOOL_LOG TURNS`.
//
// Each tool appends "run NUMBER" to TOOL_LOG, and "saved NUMBER" once its result is acknowledged: the
// writes, and the checkpoint that they belong to, which LangGraph saves at the same time. The agent
// continues where it was.

import { appendFileSync } from "node:fs";
import { Annotation, END, START, StateGraph } from "@langchain/langgraph";
import { CkptdSaver } from "@ckptd/langgraph";

const [, , url, log, turns] = process.argv;

const State = Annotation.Root({
  messages: Annotation({ reducer: (a, b) => [...a, ...b], default: () => [] }),
});

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function model({ messages }) {
  const results = messages.filter((m) => m.role === "tool").length;
  const done = results >= Number(turns);
  return { messages: [{ role: "model", content: done ? "done" : `call tool ${results}` }] };
}

async function tool({ messages }) {
  const number = messages.filter((m) => m.role === "tool").length;
  appendFileSync(log, `run ${number}\n`);
  await sleep(5);
  return { messages: [{ role: "tool", content: `result ${number} `.padEnd(500, "x") }] };
}

class Saver extends CkptdSaver {
  saved = new Set();
  waiting = new Map();

  async put(config, checkpoint, ...rest) {
    const put = await super.put(config, checkpoint, ...rest);
    this.saved.add(checkpoint.id);
    this.waiting.get(checkpoint.id)?.();
    return put;
  }

  async putWrites(config, writes, task) {
    await super.putWrites(config, writes, task);
    const result = writes.find(([, value]) => value?.[0]?.role === "tool")?.[1][0].content;
    if (result === undefined) return;
    const { checkpoint_id: id } = config.configurable;
    const done = () => appendFileSync(log, `saved ${result.split(" ")[1]}\n`);
    if (this.saved.has(id)) done();
    else this.waiting.set(id, done);
  }
}

const checkpointer = new Saver(url, { backoff: 20 });
const graph = new StateGraph(State)
  .addNode("model", model)
  .addNode("tool", tool)
  .addEdge(START, "model")
  .addConditionalEdges("model", ({ messages }) => (messages.at(-1).content === "done" ? END : "tool"))
  .addEdge("tool", "model")
  .compile({ checkpointer });

const config = { configurable: { thread_id: "agent" }, recursionLimit: 10_000 };
const { values } = await graph.getState(config);
const last = values.messages?.at(-1);
console.log("running");
if (last?.content !== "done") {
  // Without a state, the first message was not saved.
  await graph.invoke(last === undefined ? { messages: [{ role: "user", content: "go" }] } : null, config);
}
console.log(JSON.stringify((await graph.getState(config)).values.messages));
