/* What all parts of the page know, and how they tell each other of it. */

const heard = new Map();

export const store = {
  hello: null,  // the answer to `hello`, renewed on each connection
  server: null,  // ServerInfo
  tools: [],
  resources: [],
  templates: [],
  prompts: [],
  quirks: {},
  profile: "strict",
  context: {},  // the HostContext for all Views, as the page set it
};

/** Hear of something: "server", "tools", "resources", "prompts", "pick", "view", "finding", … */
export function on(name, listener) {
  const all = heard.get(name) ?? [];
  all.push(listener);
  heard.set(name, all);
}

export function tell(name, about) {
  for (const listener of heard.get(name) ?? []) listener(about);
}

/** On a narrow screen one pane is seen at a time. */
export function showPane(name) {
  document.body.dataset.pane = name;
  tell("pane", name);
}
