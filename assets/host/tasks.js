/* The tasks of the server: calls that continue after they were answered. */

import { api } from "./api.js";
import { announce, button, chip, clip, el, empty, fill } from "./dom.js";
import { on } from "./state.js";

const FINAL = ["completed", "failed", "cancelled"];
const KINDS = { completed: "good", failed: "bad", cancelled: "", input_required: "warn", working: "" };
const MOST = 100;
const tasks = new Map();  // by id, the newest first when shown

const time = (text) => { const date = new Date(text); return Number.isNaN(date.valueOf()) ? "" : date.toLocaleTimeString("en-GB"); };

function row(task) {
  const stop = () => api.request("tasks/cancel", { taskId: task.taskId }).then(() => announce("The server was asked to cancel the task"), (error) => announce(error.message, true));
  return el("li", { class: "log-line", "data-task": task.taskId }, el("time", { class: "quiet", title: "Last change" }, time(task.changed)), chip(task.status.replace("_", " "), KINDS[task.status] ?? ""),
    el("span", { class: "quiet mono", title: task.taskId }, clip(task.taskId, 12)),
    el("span", { class: "wrap line" }, clip(task.message ?? "", 500), FINAL.includes(task.status) ? null : button("Cancel", stop, { class: "button small", "aria-label": `Cancel the task ${clip(task.taskId, 12)}` })));
}

/** Fill `panel` with the tasks from now on; `count(running)` is called after each change. */
export function start(panel, count) {
  const draw = () => {
    const all = [...tasks.values()].reverse();
    if (all.length) fill(panel, el("ol", { class: "plain-list", id: "task-list" }, all.map(row)));
    else fill(panel, empty("No tasks", "Calls of tools that continue on the server are listed here while they run."));
    count(all.filter(({ status }) => !FINAL.includes(status)).length);
  };
  const put = (task) => {
    tasks.set(task.taskId, task);
    if (tasks.size > MOST) tasks.delete(tasks.keys().next().value);
  };
  api.on("task/changed", (task) => { put(task); draw(); });
  on("hello", async () => {
    tasks.clear();
    try { for (const task of (await api.request("tasks/list")).tasks) put(task); } catch { /* the server is not connected */ }
    draw();
  });
  draw();
}
