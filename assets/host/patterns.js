/* Patterns of schemas, which are the server's and may take for ever: what is not plain is tried in a worker, with a time
   limit. A pattern that is too slow, or none of this language, is left to the server, which checks everything anyway. */

const LONGEST = 10_000;  // characters; longer texts are not tested
const LONGEST_PLAIN = 1000;
const PATIENCE = 400;  // ms for one batch of tests
const MOST_KNOWN = 2000;

const known = new Map();  // pattern and text -> whether it fits
const slow = new Set();  // patterns that once took too long
const wanted = new Map();  // tests without a result so far
const compiled = new Map();
let worker = null, last = 0;

const keyOf = (pattern, text) => `${pattern.length} ${pattern} ${text}`;

/** Whether it takes no more steps than the square of the text's length: no group is repeated, little else is. */
function isPlain(pattern) {
  const bare = pattern.replaceAll(/\\[^]/g, "x").replaceAll(/\[[^\]]*\]/g, "x");
  if (pattern.length > 500 || /\)[*+?{]|\(\?<?[=!]|\{\d{4}/.test(bare) || /\\[1-9k]/.test(pattern)) return false;
  const choices = bare.replaceAll(/\(\?:|\{\d+\}/g, "").match(/[*+?{|]/g)?.length ?? 0;
  return choices <= (bare.startsWith("^") ? 2 : 1);
}

function compile(pattern) {
  if (!compiled.has(pattern)) {
    let expression = null;
    try { expression = new RegExp(pattern, "u"); } catch { /* not of this language */ }
    compiled.set(pattern, { expression, isPlain: isPlain(pattern) });
  }
  return compiled.get(pattern);
}

/** Whether a text matches, if known; `settle` runs the remaining tests. */
export function matches(pattern, text) {
  if (text.length > LONGEST || slow.has(pattern)) return true;
  const { expression, isPlain: isQuick } = compile(pattern);
  if (!expression) return true;
  if (isQuick && text.length <= LONGEST_PLAIN) return expression.test(text);
  const key = keyOf(pattern, text);
  if (!known.has(key)) wanted.set(key, [pattern, text]);
  return known.get(key) ?? true;
}

/** Read with `look` until nothing is asked any more that is not known: a branch of a union may lead to others. */
export async function settle(look) {
  for (let turn = 0; turn < 8; turn += 1) {
    wanted.clear();
    look();
    if (!wanted.size) return;
    const asked = [...wanted.values()];
    const told = await tryAll(asked);
    if (known.size > MOST_KNOWN) known.clear();
    asked.forEach(([pattern, text], at) => { if (at < told.length) known.set(keyOf(pattern, text), told[at]); });
    if (told.length < asked.length) slow.add(asked[told.length][0]);  // this test was running, and is not repeated
  }
}

/** What was found out in time, in the order of what was asked. */
function tryAll(asked) {
  worker ??= new Worker("/patterns_worker.js");
  const turn = (last += 1), told = [];
  return new Promise((done) => {
    const end = () => { clearTimeout(timer); worker?.removeEventListener("message", take); done(told); };
    const stop = () => { worker?.terminate(); worker = null; end(); };
    // The time starts when the worker reports that it runs, because the machine may be busy.
    let timer = setTimeout(stop, 20 * PATIENCE);
    const take = ({ data }) => {
      if (data.turn !== turn) return;
      clearTimeout(timer);
      timer = setTimeout(stop, PATIENCE);
      if ("fits" in data) told.push(data.fits);
      if (told.length === asked.length) end();
    };
    worker.addEventListener("message", take);
    worker.addEventListener("error", stop, { once: true });
    worker.postMessage({ turn, asked });
  });
}
