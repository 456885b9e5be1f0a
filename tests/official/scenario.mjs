// What the official TypeScript clients' scripts share; scenario.py says what a scenario and a report hold.

import { readFileSync } from 'node:fs';

/** The installed version of a package; few of them export their package.json. */
export function versionOf(name) {
  return JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url), 'utf8')).version;
}

/** The scenario from stdin, with every member there. */
export async function read() {
  let text = '';
  for await (const chunk of process.stdin) text += chunk;
  return { era: 'legacy', extensions: {}, answers: {}, steps: [], ...JSON.parse(text) };
}

/** The capabilities that offering these answers and extensions declares. */
export function capabilitiesOf(scenario) {
  const capabilities = {};
  if (scenario.answers['sampling/createMessage']) capabilities.sampling = {};
  if (scenario.answers['elicitation/create']) capabilities.elicitation = { form: {}, url: {} };
  if (scenario.answers['roots/list']) capabilities.roots = { listChanged: true };
  if (Object.keys(scenario.extensions).length > 0) capabilities.extensions = scenario.extensions;
  return capabilities;
}

/** What the client answers to the server's question: the same each time, or of a list the next. */
export function answerOf(answer) {
  return Array.isArray(answer) ? answer.shift() : answer;
}

/** A subscription around some steps, until so many of its events were heard. */
async function listen(client, step) {
  const subscription = await client.listen(step.params);
  const before = client.heard.length;
  const done = await steps(client, { steps: step.steps });
  const events = () => client.heard.slice(before).map(message => message.method);
  const deadline = Date.now() + 20_000;
  while (events().length < step.events && Date.now() < deadline) await new Promise(resolve => setTimeout(resolve, 5));
  const result = { honored: subscription.honoredFilter, steps: done, events: events() };
  await subscription.close();
  return result;
}

/** Runs one step by the client's own typed method; both generations of the client have the same names. */
function call(client, step, options) {
  const params = step.params;
  switch (step.method) {
    case 'tools/list':
      return client.listTools(params, options);
    case 'tools/call':
      return step.task ? client.callAsTask(params, { ...options, task: step.task }) : client.callToolWith(params, options);
    case 'resources/list':
      return client.listResources(params, options);
    case 'resources/templates/list':
      return client.listResourceTemplates(params, options);
    case 'resources/read':
      return client.readResource(params, options);
    case 'resources/subscribe':
      return client.subscribeResource(params, options);
    case 'resources/unsubscribe':
      return client.unsubscribeResource(params, options);
    case 'prompts/list':
      return client.listPrompts(params, options);
    case 'prompts/get':
      return client.getPrompt(params, options);
    case 'completion/complete':
      return client.complete(params, options);
    case 'logging/setLevel':
      return client.setLoggingLevel(params.level, options);
    case 'ping':
      return client.ping(options);
    case 'notifications/roots/list_changed':
      return client.sendRootsListChanged();
    case 'subscriptions/listen':
      return listen(client, step);
    default:
      throw new Error(`this script has no step ${step.method}`);
  }
}

/** Runs all steps; a step that fails is told in the report and the next one goes on. */
export async function steps(client, scenario) {
  const done = [];
  for (const step of scenario.steps) {
    const told = { method: step.method, progress: [] };
    const options = { timeout: (step.timeout ?? 20) * 1000 };
    if (step.progress) {
      options.onprogress = p => told.progress.push([p.progress, p.total ?? null, p.message ?? null]);
    }
    if (step.patient) options.resetTimeoutOnProgress = true;
    try {
      told.result = await call(client, step, options);
    } catch (error) {
      told.error = Number.isInteger(error.code)
        ? { code: error.code, message: error.message, data: error.data ?? null }
        : { type: error.constructor.name, message: String(error.message) };
    }
    done.push(told);
  }
  return done;
}

/** Prints the report; the one thing that goes to stdout. */
export function write(report) {
  process.stdout.write(JSON.stringify(report) + '\n');
}
