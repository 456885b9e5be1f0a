/* What is in force for a View: its policy, what it may use, what its document is, the tools it offers itself. */

import { api } from "./api.js";
import { announce, bytes, button, chip, copyButton, el, empty, fill, plural, problem } from "./dom.js";
import { makeForm } from "./form.js";
import { folded, jsonBox } from "./json.js";
import { failure, resultOf } from "./result.js";
import { reload } from "./views.js";

/** Directives in rows, as they are read. */
function policyOf(text) {
  const rows = text.split(";").map((one) => one.trim()).filter(Boolean).map((one) => { const at = one.indexOf(" "); return at < 0 ? [one, ""] : [one.slice(0, at), one.slice(at + 1)]; });
  return el("div", { class: "json-box" }, el("dl", { class: "pairs mono" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])), copyButton("Copy the policy", () => text));
}

function permissionsOf(card) {
  const { asked, granted } = card.info.permissions;
  if (!asked.length) return el("p", { class: "quiet" }, "The app asks for none.");
  return el("ul", { class: "plain-list" }, asked.map((name) => el("li", { class: "line" }, el("code", {}, name), granted.includes(name) ? chip("granted", "good") : chip("not granted"),
    granted.includes(name) ? null : button("Grant and load again", async () => { await api.request("view/permission", { viewId: card.info.viewId, name }); await reload(card); }, { class: "button small" }))));
}

function toolsOf(card) {
  const place = el("div", { class: "stack" }, el("p", { class: "quiet" }, "Asking the app…"));
  api.request("view/tools", { viewId: card.info.viewId }).then(({ tools }) => {
    fill(place, tools.length ? tools.map((tool) => folded(tool.title ?? tool.name, () => appTool(card, tool))) : el("p", { class: "quiet" }, "The app offers none."));
  }, (error) => fill(place, el("p", { class: "quiet" }, error.message)));
  return place;
}

function appTool(card, tool) {
  const form = makeForm(tool.inputSchema ?? {});
  const output = el("div", {});
  const isSafe = tool.annotations?.readOnlyHint === true;
  const call = button(isSafe ? "Call" : "Call, I confirm", async () => {
    await form.settled();
    const { value, problems } = form.read();
    if (problems.length) { problems[0].focus(); return; }
    call.disabled = true;
    try {
      const told = await api.request("view/tools/call", { viewId: card.info.viewId, name: tool.name, arguments: value, confirmed: true });
      fill(output, resultOf(told.result ?? told));
      announce(`${tool.name} answered`);
    } catch (error) { fill(output, failure(error, "The app's tool failed")); }
    call.disabled = false;
  }, { class: "button small primary", "aria-label": isSafe ? `Call ${tool.name}` : `Call ${tool.name}, I confirm` });
  return el("div", { class: "stack" }, tool.description ? el("p", {}, tool.description) : null, form.node, el("div", { class: "actions" }, call), output);
}

export function detailsOf(card) {
  const { info } = card;
  const ping = el("span", { class: "quiet", role: "status" });
  const facts = [
    ["Resource", el("span", { class: "mono" }, info.uri)],
    ["SHA-256", el("span", { class: "mono wrap" }, info.sha256)],
    ["Document", `${bytes(info.bytes)} of HTML`],
    ["Profile", info.profile],
    ["Sandbox", el("span", { class: "mono" }, info.sandbox || "(no tokens)")],
    ["allow", el("span", { class: "mono" }, info.allow || "(nothing)")],
    ["Proxy", el("span", { class: "mono wrap" }, info.proxyOrigin)],
    ["prefersBorder", info.prefersBorder === undefined || info.prefersBorder === null ? "not said" : String(info.prefersBorder)],
    ["domain", info.domain ?? "not said"],
  ];
  return el("div", { class: "details-body" },
    info.problems.length ? problem(plural(info.problems.length, "problem"), info.problems.join("\n")) : null,
    el("section", {}, el("h4", {}, "Content security policy in force"), policyOf(info.csp)),
    info.declared ? el("section", {}, el("h4", {}, "Declared, and granted"), jsonBox(info.declared, "declared sources")) : el("p", { class: "quiet" }, "The app declares no csp: the default of the specification holds."),
    el("section", {}, el("h4", {}, "Permissions"), permissionsOf(card)),
    el("section", {}, el("h4", {}, "The document"), el("dl", { class: "pairs" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))),
    el("section", {}, el("h4", {}, "The app's own tools"), toolsOf(card)),
    el("div", { class: "actions" }, button("Ping", async () => {
      try { const { milliseconds } = await api.request("view/ping", { viewId: info.viewId }); ping.textContent = `answered in ${milliseconds.toFixed(1)} ms`; } catch (error) { ping.textContent = error.message; }
    }, { class: "button small" }), ping));
}
