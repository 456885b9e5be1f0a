/* Patterns of schemas, which are the server's and may take for ever: what is not plain is tried in a worker, with a time
   limit. A pattern that is too slow, or none of this language, is left to the server, which checks everything anyway. */

const LONGEST = 10_000;  // characters of a text that is held against a pattern at all
const LONGEST_PLAIN = 1000;
const PATIENCE = 400;  // ms for all that is asked at once
const MOST_KNOWN = 2000;

const known = new Map();  // pattern and text -> whether it fits
const slow = new Set();  // patterns that took too long once
const wanted = new Map();  // what was asked and is not known
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

/** Whether a text fits, as far as that is known yet: `settle` finds out the rest. */
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
    if (told.length < asked.length) slow.add(asked[told.length][0]);  // it was at this one, and is not asked again
  }
}

/** What was found out in time, in the order of what was asked. */
function tryAll(asked) {
  worker ??= new Worker("/patterns_worker.js");
  const turn = (last += 1), told = [];
  return new Promise((done) => {
    const end = () => { clearTimeout(timer); worker?.removeEventListener("message", take); done(told); };
    const stop = () => { worker?.terminate(); worker = null; end(); };
    // Until it says that it runs it had no time at all: the machine may be busy.
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
