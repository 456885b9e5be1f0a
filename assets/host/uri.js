/* URI templates (RFC 6570): their variables, and what becomes of them with values. */

const EXPRESSION = /\{([+#./;?&]?)([^{}]+)\}/g;
const RULES = {
  "": { first: "", between: ",", named: false, safe: false },
  "+": { first: "", between: ",", named: false, safe: true },
  "#": { first: "#", between: ",", named: false, safe: true },
  ".": { first: ".", between: ".", named: false, safe: false },
  "/": { first: "/", between: "/", named: false, safe: false },
  ";": { first: ";", between: ";", named: true, safe: false, bare: true },
  "?": { first: "?", between: "&", named: true, safe: false },
  "&": { first: "&", between: "&", named: true, safe: false },
};
const parts = (list) => list.split(",").map((one) => { const [, name, cut] = /^([^:*]+)(?::(\d+))?\*?$/.exec(one.trim()) ?? [null, one.trim()]; return { name, cut }; });

const strict = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
const lax = (text) => encodeURI(text).replaceAll("%25", "%").replace(/%(?![\da-f]{2})/gi, "%25");

/** The names in a template, in order, each once. */
export const variables = (template) => [...new Set([...template.matchAll(EXPRESSION)].flatMap(([, , list]) => parts(list).map(({ name }) => name)))];

/** The address of a template with these values; empty ones are left out. */
export function expand(template, values) {
  return template.replaceAll(EXPRESSION, (_, operator, list) => {
    const { first, between, named, safe, bare } = RULES[operator];
    const done = parts(list).filter(({ name }) => values[name] !== undefined && values[name] !== "").map(({ name, cut }) => {
      const text = (safe ? lax : strict)(cut ? [...values[name]].slice(0, Number(cut)).join("") : values[name]);
      return named ? (bare && !text ? name : `${name}=${text}`) : text;
    });
    return done.length ? first + done.join(between) : "";
  });
}
