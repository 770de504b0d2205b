// Measures the saver: `node bench/bench.mjs`, with a built workspace and ckptd in CKPTD_BIN.
//
// It prints a Markdown table. Times are in milliseconds; those of puts are without the serializer.

import { execFileSync } from "node:child_process";
import { subscribe } from "node:diagnostics_channel";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Annotation, END, MemorySaver, START, StateGraph } from "@langchain/langgraph";
import { emptyCheckpoint, uuid6 } from "@langchain/langgraph-checkpoint";
import { CkptdSaver } from "@ckptd/langgraph";

const folder = mkdtempSync(join(tmpdir(), "ckptd-bench-"));
const local = (name) => CkptdSaver.local(join(folder, name), { untilUnused: "2s" });

let sent = 0;
subscribe("http.client.request.start", ({ request }) => {
  sent += Number(/content-length: (\d+)/i.exec(request._header)?.[1] ?? 0);
});

const message = (n) => ({ role: "user", id: `${n}`, content: `${n} `.padEnd(980, "lorem ipsum ") });
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const ms = (n) => n.toFixed(2);
const mb = (n) => (n / 1e6).toFixed(2);
const rows = [];
const row = (what, figure) => {
  rows.push(`| ${what} | ${figure} |`);
  console.error(rows.at(-1));
};

/** Times the serializer, to take it off. */
function timed(serde) {
  const timing = { spent: 0, serde };
  timing.serde = {
    async dumpsTyped(v) {
      const at = performance.now();
      const out = await serde.dumpsTyped(v);
      timing.spent += performance.now() - at;
      return out;
    },
    loadsTyped: (type, data) => serde.loadsTyped(type, data),
  };
  return timing;
}

async function puts(saver, steps, timing = { spent: 0 }) {
  const messages = [];
  const times = [];
  const dumps = [];
  let config = { configurable: { thread_id: `puts-${steps}`, checkpoint_ns: "" } };
  for (let step = 1; step <= steps; step++) {
    messages.push(message(step));
    const cp = { ...emptyCheckpoint(), id: uuid6(step), channel_values: { messages: [...messages] } };
    cp.channel_versions = { messages: step };
    timing.spent = 0;
    const at = performance.now();
    config = await saver.put(config, cp, { source: "loop", step, parents: {} }, { messages: step });
    times.push(performance.now() - at - timing.spent);
    dumps.push(timing.spent);
  }
  return { times, dumps, config };
}

async function bench() {
  const steps = 1_000;
  const timing = timed(new MemorySaver().serde);
  const saver = await CkptdSaver.local(join(folder, "puts"), { untilUnused: "2s", serde: timing.serde });
  await puts(saver, 50, timing); // warms up
  sent = 0;
  const { times, dumps, config } = await puts(saver, steps, timing);
  row(`${steps} steps of 1 kB: sent, MB`, mb(sent));
  const first = [median(times.slice(0, 20)), median(dumps.slice(0, 20))];
  const last = [median(times.slice(-20)), median(dumps.slice(-20))];
  row("put, p50 of the first and the last 20", `${ms(first[0])} → ${ms(last[0])} (${(last[0] / first[0]).toFixed(2)} ×)`);
  row("serializer, beside it", `${ms(first[1])} → ${ms(last[1])}`);
  const reader = await local("puts");
  const at = performance.now();
  await reader.getTuple(config);
  row("getTuple of 1 MB, fresh saver", ms(performance.now() - at));
  saver.close();
  reader.close();
  while (existsSync(join(folder, "puts.sock"))) await new Promise((done) => setTimeout(done, 100));
  row("its data directory without ballast, MB", mb(du(join(folder, "puts"))));
  if (process.argv[2] === "puts") return;
  await graphs();
  await parallel();
}

function du(path) {
  return Number(execFileSync("du", ["-sB1", "--exclude=ballast", path], { encoding: "utf8" }).split("\t")[0]);
}

const State = Annotation.Root({
  log: Annotation({ reducer: (a, b) => [...a, ...b], default: () => [] }),
});

async function superstep(checkpointer, steps) {
  const graph = new StateGraph(State)
    .addNode("step", ({ log }) => ({ log: [message(log.length)] }))
    .addConditionalEdges("step", ({ log }) => (log.length < steps ? "step" : END))
    .addEdge(START, "step")
    .compile({ checkpointer });
  const config = { configurable: { thread_id: uuid6(0) }, recursionLimit: steps + 10 };
  const at = performance.now();
  await graph.invoke({ log: [] }, config);
  return (performance.now() - at) / steps;
}

async function graphs() {
  const saver = await local("graphs");
  for (const steps of [10, 50, 200]) {
    const [ours, memory] = [[], []];
    for (let i = 0; i < 5; i++) {
      ours.push(await superstep(saver, steps));
      memory.push(await superstep(new MemorySaver(), steps));
    }
    row(`superstep of ${steps}, beside MemorySaver`, `${ms(median(ours))}, ${ms(median(memory))}`);
  }
  saver.close();
}

async function parallel() {
  const saver = await local("parallel");
  const at = performance.now();
  await Promise.all(
    Array.from({ length: 16 }, async (_, n) => {
      let config = { configurable: { thread_id: `t${n}`, checkpoint_ns: "" } };
      for (let step = 1; step <= 100; step++) {
        const cp = { ...emptyCheckpoint(), id: uuid6(step), channel_values: { m: message(step) } };
        cp.channel_versions = { m: step };
        config = await saver.put(config, cp, { source: "loop", step, parents: {} }, { m: step });
        await saver.putWrites(config, [["m", message(step)]], "task");
      }
    }),
  );
  row("16 threads × 100 steps, put + putWrites a second", Math.round(3_200_000 / (performance.now() - at)));
  saver.close();
}

try {
  await bench();
  console.log(["| what | figure |", "|---|---|", ...rows].join("\n"));
} finally {
  if (process.env.KEEP === undefined) setTimeout(() => rmSync(folder, { recursive: true, force: true }), 4_000);
  else console.error(folder);
}
