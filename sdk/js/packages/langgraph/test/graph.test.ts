// Graphs that run on the saver.

import { Annotation, Command, END, interrupt, START, StateGraph } from "@langchain/langgraph";
import { CkptdSaver } from "@ckptd/langgraph";
import { Client } from "@ckptd/client";
import { serve, type Daemon } from "../../../test/programs.js";

let daemon: Daemon;
beforeAll(async () => {
  daemon = await serve();
});
afterAll(async () => {
  await daemon.stop();
});

const State = Annotation.Root({
  log: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }),
});

const saverOf = (): CkptdSaver => new CkptdSaver(daemon.socket);

test("an interrupted graph is resumed by another saver, rewound and forked", async () => {
  const graphOf = () =>
    new StateGraph(State)
      .addNode("plan", () => ({ log: ["plan"] }))
      .addNode("approve", () => ({ log: [`approved: ${interrupt("go?")}`] }))
      .addNode("act", () => ({ log: ["act"] }))
      .addEdge(START, "plan")
      .addEdge("plan", "approve")
      .addEdge("approve", "act")
      .addEdge("act", END)
      .compile({ checkpointer: saverOf() });
  const config = { configurable: { thread_id: "approval" } };
  await graphOf().invoke({ log: ["start"] }, config);
  const waiting = await graphOf().getState(config);
  expect(waiting.next).toEqual(["approve"]);
  expect(waiting.tasks[0]?.interrupts[0]?.value).toBe("go?");
  const done = await graphOf().invoke(new Command({ resume: "yes" }), config);
  expect(done.log).toEqual(["start", "plan", "approved: yes", "act"]);
  // Rewind to before the approval, and decide otherwise: a fork.
  const states = [];
  for await (const s of graphOf().getStateHistory(config)) states.push(s);
  expect(states.map((s) => s.next)).toEqual([[], ["act"], ["approve"], ["plan"], ["__start__"]]);
  const before = states[2];
  // A copy of a checkpoint hands over no new versions.
  const copied = await graphOf().updateState(before?.config ?? config, null, "__copy__");
  expect((await graphOf().getState(copied)).values).toEqual(before?.values);
  const again = await graphOf().invoke(new Command({ resume: "no" }), copied);
  expect(again.log).toEqual(["start", "plan", "approved: no", "act"]);
});

test("subgraphs nested 8 deep", async () => {
  const nest = (depth: number): ReturnType<typeof leaf> => {
    const inner = depth === 0 ? leaf() : nest(depth - 1);
    return new StateGraph(State)
      .addNode(`a_long_name_of_a_node_${depth}`, inner)
      .addEdge(START, `a_long_name_of_a_node_${depth}`)
      .compile(depth === 8 ? { checkpointer: saverOf() } : {}) as never;
  };
  const leaf = () =>
    new StateGraph(State)
      .addNode("leaf", () => ({ log: [`leaf: ${interrupt("?")}`] }))
      .addEdge(START, "leaf")
      .compile();
  const config = { configurable: { thread_id: "nested" } };
  await nest(8).invoke({ log: [] }, config);
  const done = await nest(8).invoke(new Command({ resume: "ok" }), config);
  expect(done.log.at(-1)).toBe("leaf: ok");
  const client = new Client(daemon.socket);
  const names = await client.thread("nested").namespaces();
  client.close();
  expect(Math.max(...names.map((n) => n.length))).toBeGreaterThan(256);
});

test("prune removes the namespaces of old subgraph calls", async () => {
  const calls = 40;
  const inner = new StateGraph(State)
    .addNode("work", () => ({ log: ["call"] }))
    .addEdge(START, "work")
    .compile();
  const saver = saverOf();
  const graph = new StateGraph(State)
    .addNode("call", async (_, config) => {
      await inner.invoke({ log: [] }, config);
      return { log: ["called"] };
    })
    .addConditionalEdges("call", ({ log }) => (log.length < calls ? "call" : END))
    .addEdge(START, "call")
    .compile({ checkpointer: saver });
  const config = { configurable: { thread_id: "calls" }, recursionLimit: 2 * calls };
  const done = await graph.invoke({ log: [] }, config);
  const client = new Client(daemon.socket);
  const names = (): Promise<string[]> => client.thread("calls").namespaces();
  expect(await names()).toHaveLength(calls + 1);
  await saver.prune(["calls"]);
  expect(await names()).toEqual([""]);
  expect((await graph.getState(config)).values).toEqual(done);
  client.close();
});

test("parallel tasks, and one of them fails", async () => {
  let fail = true;
  const graph = new StateGraph(State)
    .addNode("good", () => ({ log: ["good"] }))
    .addNode("bad", () => {
      if (fail) throw new Error("no luck");
      return { log: ["bad"] };
    })
    .addEdge(START, "good")
    .addEdge(START, "bad")
    .compile({ checkpointer: saverOf() });
  const config = { configurable: { thread_id: "parallel" } };
  await expect(graph.invoke({ log: [] }, config)).rejects.toThrow("no luck");
  fail = false;
  const done = await graph.invoke(null, config);
  expect(done.log.sort()).toEqual(["bad", "good"]);
});

test("a run survives kills of the daemon", async () => {
  const steps = 30;
  const acknowledged: number[] = [];
  const restarted: Promise<void>[] = [];
  const graph = new StateGraph(State)
    .addNode("step", async (state) => {
      const n = state.log.length;
      acknowledged.push(n);
      if (n % 10 === 5) restarted.push(daemon.restart());
      return { log: [`step ${n}`] };
    })
    .addConditionalEdges("step", (s) => (s.log.length < steps ? "step" : END))
    .addEdge(START, "step")
    .compile({ checkpointer: saverOf() });
  const config = { configurable: { thread_id: "kills" }, recursionLimit: 100 };
  const done = await graph.invoke({ log: [] }, config);
  expect(done.log).toEqual(Array.from({ length: steps }, (_, n) => `step ${n}`));
  expect(acknowledged).toHaveLength(steps);
  await Promise.all(restarted);
  const state = await graph.getState(config);
  expect(state.values.log).toEqual(done.log);
});
