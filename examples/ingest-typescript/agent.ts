/** An agent with a scripted model and one tool, recorded: `node agent.ts URL ID`, its token in TRACKLOG_TOKEN. */

import { Recording } from "./tracklog.ts";

declare const process: { argv: string[]; env: Record<string, string | undefined> };

const TURNS = 5;
const task = "Find flights to five cities";
const [, , url = "http://localhost:8080", id = "planner-1"] = process.argv;
const run = new Recording({ url, token: process.env.TRACKLOG_TOKEN ?? "", id, client: "planner" });

await run.start("planner", task, { model: "scripted", labels: { language: "typescript" } });
run.add({ type: "MessageReceived", role: "user", message: task });
for (let turn = 1; turn <= TURNS; turn++) {
  const call = { id: `call-${turn}`, type: "function", function: { name: "search", arguments: `{"city":${turn}}` } };
  run.add({ type: "ContextBuilt" });
  run.add({ type: "ModelReplied", reply: { role: "assistant", content: null, tool_calls: [call] } });
  run.add({ type: "Authorized", call_id: call.id, ruling: "allow" });
  run.add({ type: "ToolIntent", call_id: call.id, tool: "search", arguments: call.function.arguments, effect: "readonly" });
  await run.flush(); // the intent is durable before the tool runs
  const output = `3 flights to city ${turn}`;
  run.add({ type: "ToolResult", call_id: call.id, status: "ok", output });
}
run.add({ type: "ContextBuilt" });
run.add({ type: "ModelReplied", reply: { role: "assistant", content: "15 flights" } });
run.add({ type: "TaskEnded", ending: "completed", result: "15 flights" });
await run.flush();
console.log(`recorded ${id}`);
