/* The chosen resource, template or prompt: reads and subscribes, and completes its parameters. */

import { api } from "./api.js";
import { announce, bytes, button, byId, chip, clip, debounce, el, empty, fill, labelled, newId, plural } from "./dom.js";
import { jsonBox, folded } from "./json.js";
import { blockOf, contentOf, failure } from "./result.js";
import { choose } from "./catalogue.js";
import { on, showPane, store } from "./state.js";
import { expand, variables } from "./uri.js";

const subscribed = new Set();
let current = null;  // {uri, read()} of the shown resource

/** An input with completion by the server. */
function completed(ref, name, others, about = {}) {
  const offers = el("datalist", { id: newId("o") });
  const input = el("input", { class: "field", list: offers.id, autocomplete: "off", spellcheck: "false", "aria-required": about.required ? "true" : null, dir: "auto" });
  const says = el("p", { class: "hint" });
  const propose = debounce(async () => {
    if (!store.server?.capabilities?.completions) return;
    try {
      const known = Object.fromEntries(Object.entries(others()).filter(([key, value]) => key !== name && value));
      const { completion } = await api.request("completion/complete", { ref, argument: { name, value: input.value }, ...(Object.keys(known).length ? { context: { arguments: known } } : {}) });
      fill(offers, completion.values.map((value) => el("option", { value })));
      says.textContent = completion.values.length ? `${plural(completion.total ?? completion.values.length, "proposal")}: ${clip(completion.values.slice(0, 5).join(", "), 120)}` : "";
    } catch { says.textContent = ""; }
  }, 150);
  input.addEventListener("input", propose);
  input.addEventListener("focus", propose);
  const node = labelled(about.title ?? name, input);
  if (about.required) node.querySelector("label").append(" ", el("span", { class: "need" }, "required"));
  if (about.description) node.append(el("p", { class: "hint" }, about.description));
  node.append(says, offers);
  return { node, input };
}

function heading(about, name, marks = []) {
  return el("header", { class: "tool-head" }, el("h2", { tabindex: "-1", id: "tool-title", dir: "auto" }, about.title ?? about.name ?? name),
    el("div", { class: "line" }, el("code", { class: "wrap" }, name), marks), about.description ? el("p", { class: "about", dir: "auto" }, clip(about.description, 4000)) : null);
}

const marksOf = (about) => [about.mimeType ? chip(about.mimeType) : null, about.size !== undefined && about.size !== null ? chip(bytes(about.size)) : null];

function place(node, title, output) {
  document.body.classList.toggle("has-stage", document.querySelector("#views > .view") !== null);
  fill(byId("call"), node);
  fill(byId("result"), el("h2", { class: "pane-title" }, title), output);
}

async function read(uri, output, from) {
  from.disabled = true;
  try {
    const told = await api.request("resources/read", { uri });
    fill(output, el("div", { class: "blocks" }, (told.contents ?? []).map(contentOf), told.contents?.length ? null : empty("No contents"), folded("The whole result", () => jsonBox(told, "the result"))));
    announce("Read");
  } catch (error) { fill(output, failure(error, "It could not be read")); announce(error.message, true); }
  from.disabled = false;
}

function reader(uriOf, actions = []) {
  const output = el("div", { class: "output" }, empty("Not read yet"));
  const button1 = button("Read", () => { const uri = uriOf(); if (uri) read(uri, output, button1); }, { class: "button primary" });
  const follow = button("Subscribe", async () => {
    const uri = uriOf();
    if (!uri) return;
    const method = subscribed.has(uri) ? "resources/unsubscribe" : "resources/subscribe";
    try {
      await api.request(method, { uri });
      if (method === "resources/subscribe") subscribed.add(uri); else subscribed.delete(uri);
      showFollow();
      announce(subscribed.has(uri) ? "Subscribed" : "Not subscribed any more");
    } catch (error) { fill(output, failure(error, "It cannot be subscribed to")); }
  }, { "aria-pressed": "false" });
  const showFollow = () => { const is = subscribed.has(uriOf(false)); follow.setAttribute("aria-pressed", String(is)); follow.querySelector("span").textContent = is ? "Subscribed" : "Subscribe"; };
  showFollow();
  const canFollow = store.server?.capabilities?.resources?.subscribe;
  current = { uriOf, read: () => button1.click() };
  return { output, showFollow, bar: el("div", { class: "actions" }, button1, canFollow ? follow : null, actions) };
}

function showResource(resource) {
  const { output, bar } = reader(() => resource.uri);
  const { uri, name, title, description, mimeType, size, ...rest } = resource;
  place(el("div", { class: "tool" }, heading(resource, uri, marksOf(resource)), bar, Object.keys(rest).length ? folded("Definition", () => jsonBox(resource, "definition")) : null), "Content", output);
}

function showTemplate(template) {
  const names = variables(template.uriTemplate);
  const inputs = {};
  const values = () => Object.fromEntries(names.map((name) => [name, inputs[name]?.input.value ?? ""]));
  const shown = el("p", { class: "mono wrap quiet", role: "status" });
  const uriOf = () => expand(template.uriTemplate, values());
  const { output, bar, showFollow } = reader(uriOf);
  for (const name of names) {
    inputs[name] = completed({ type: "ref/resource", uri: template.uriTemplate }, name, values);
    inputs[name].input.addEventListener("input", () => { shown.textContent = uriOf(); showFollow(); });
    inputs[name].input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); current.read(); } });
  }
  shown.textContent = uriOf();
  place(el("div", { class: "tool" }, heading(template, template.uriTemplate, [chip("template"), ...marksOf(template)]), el("div", { class: "fields" }, Object.values(inputs).map(({ node }) => node)), shown, bar), "Content", output);
}

function showPrompt(prompt) {
  const inputs = {};
  const all = prompt.arguments ?? [];
  const values = () => Object.fromEntries(all.map(({ name }) => [name, inputs[name]?.input.value ?? ""]));
  for (const about of all) inputs[about.name] = completed({ type: "ref/prompt", name: prompt.name }, about.name, values, about);
  const output = el("div", { class: "output" }, empty("Not asked for yet", "Its messages will be here."));
  const get = button("Get", async () => {
    const lacking = all.find(({ name, required }) => required && !inputs[name].input.value);
    for (const { name } of all) inputs[name].input.removeAttribute("aria-invalid");
    if (lacking) { inputs[lacking.name].input.setAttribute("aria-invalid", "true"); inputs[lacking.name].input.focus(); announce(`${lacking.name} is required`, true); return; }
    get.disabled = true;
    try {
      const told = await api.request("prompts/get", { name: prompt.name, arguments: Object.fromEntries(Object.entries(values()).filter(([, value]) => value !== "")) });
      fill(output, el("div", { class: "blocks" }, told.description ? el("p", { class: "quiet" }, told.description) : null,
        (told.messages ?? []).map((one) => el("div", { class: "said" }, el("p", { class: "quiet" }, String(one.role)), [one.content].flat().map(blockOf))), folded("The whole result", () => jsonBox(told, "the result"))));
      announce("Done");
    } catch (error) { fill(output, failure(error, "The prompt was refused")); announce(error.message, true); }
    get.disabled = false;
  }, { class: "button primary" });
  current = null;
  place(el("div", { class: "tool", keydown: (event) => { if (event.key === "Enter" && event.target.tagName === "INPUT") { event.preventDefault(); get.click(); } } }, heading(prompt, prompt.name),
    all.length ? el("div", { class: "fields" }, Object.values(inputs).map(({ node }) => node)) : el("p", { class: "quiet" }, "This prompt takes no arguments."), el("div", { class: "actions" }, get), folded("Definition", () => jsonBox(prompt, "definition"))), "Messages", output);
}

export function start() {
  on("pick", (about) => {
    if (about.kind === "resource") showResource(about.resource);
    else if (about.kind === "template") showTemplate(about.template);
    else if (about.kind === "prompt") showPrompt(about.prompt);
    else current = null;
  });
  on("read", (uri) => {
    if (!choose(`resource ${uri}`)) showResource({ uri, name: uri });
    current.read();
    showPane("call");
  });
  api.on("resource/updated", ({ uri }) => {
    announce(`${uri} has changed`);
    if (current?.uriOf(false) === uri) current.read();
  });
  on("hello", () => subscribed.clear());
}
