/* JSON Schema as a form needs it: references followed, `allOf` joined, what a value breaks in words, which branch of a
   union it is. Conditions (`if`, `not`, `dependentSchemas`) are left to the server, which checks everything anyway. */

import { clip, isObject, plural } from "./dom.js";
import { matches } from "./patterns.js";

const DEEP = 16;
/** The encoding of strings that are files, in schemas of `withFiles`. */
export const DATA_URI = "data-uri";

/** The schema of a tool's arguments, in which parameters that take files are marked. */
export function withFiles(tool) {
  const schema = tool.inputSchema ?? {};
  const names = tool._meta?.["openai/fileParams"];
  if (!Array.isArray(names) || !isObject(schema.properties)) return schema;
  const mark = (one) => !isObject(one) ? one
    : one.type === "string" ? { ...one, contentEncoding: DATA_URI }
      : { ...one, ...(one.items ? { items: mark(one.items) } : {}), ...(Array.isArray(one.anyOf) ? { anyOf: one.anyOf.map(mark) } : {}) };
  const marked = Object.entries(schema.properties).map(([name, one]) => [name, names.includes(name) ? mark(one) : one]);
  return { ...schema, properties: Object.fromEntries(marked) };
}

const same = (left, right) => left === right || JSON.stringify(left) === JSON.stringify(right);

function found(reference, root) {
  if (reference === "#") return root;
  if (reference.startsWith("#/")) {
    let at = root;
    for (const part of reference.slice(2).split("/")) {
      let name = part;
      try { name = decodeURIComponent(part); } catch { /* not encoded then */ }
      at = Object.hasOwn(Object(at), (name = name.replaceAll("~1", "/").replaceAll("~0", "~"))) ? at[name] : undefined;
    }
    return at;
  }
  const definitions = Object.values({ ...root.definitions, ...root.$defs }).filter(isObject);
  const anchor = reference.startsWith("#") ? reference.slice(1) : null;
  return definitions.find((one) => (anchor === null ? one.$id === reference : one.$anchor === anchor || one.$dynamicAnchor === anchor));
}

function joined(left, right) {
  const both = { ...left, ...right };
  if (left.properties && right.properties) {
    both.properties = { ...left.properties };
    for (const [name, one] of Object.entries(right.properties)) {
      const other = left.properties[name];
      both.properties[name] = isObject(other) && isObject(one) ? joined(other, one) : one;
    }
  }
  if (Array.isArray(left.required) && Array.isArray(right.required)) both.required = [...new Set([...left.required, ...right.required])];
  return both;
}

// A schema that refers to itself several times over would take for ever: what is left of one after so many steps is
// taken as if it said nothing. The server checks everything anyway.
const MOST_STEPS = 1000, MOST_FITTING = 10_000;
let steps = 0, fitting = 0;

/** The schema with its references and `allOf` worked in; `{}` for true, null for false. */
export function plain(schema, root, depth = 0) {
  if (depth === 0) steps = MOST_STEPS;
  steps -= 1;
  if (schema === false) return null;
  if (!isObject(schema) || depth > DEEP || steps < 0) return {};
  let whole = schema;
  const reference = schema.$ref ?? schema.$dynamicRef;
  if (typeof reference === "string") {
    const { $ref, $dynamicRef, ...beside } = schema;
    whole = joined(plain(found(reference, root), root, depth + 1) ?? {}, beside);
  }
  if (Array.isArray(whole.allOf)) {
    const { allOf, ...beside } = whole;
    whole = joined(allOf.map((one) => plain(one, root, depth + 1) ?? {}).reduce(joined, {}), beside);
  }
  return whole;
}

const isNothing = (schema, root) => {
  const one = plain(schema, root);
  return one !== null && (one.type === "null" || ("const" in one && one.const === null));
};

/** What a schema is besides null: `{schema, isNullable}`; a union that is left with one branch is that branch. */
export function apart(given, root) {
  const schema = plain(given, root);
  if (schema === null) return { schema: null, isNullable: false };
  for (const word of ["anyOf", "oneOf"]) {
    const branches = schema[word];
    if (!Array.isArray(branches) || !branches.some((one) => isNothing(one, root))) continue;
    const { [word]: _, ...beside } = schema;
    const rest = branches.filter((one) => !isNothing(one, root));
    return { schema: rest.length === 1 ? joined(plain(rest[0], root) ?? {}, beside) : { ...beside, [word]: rest }, isNullable: rest.length > 0 };
  }
  if (Array.isArray(schema.type) && schema.type.includes("null")) {
    const rest = schema.type.filter((one) => one !== "null");
    return { schema: { ...schema, type: rest.length === 1 ? rest[0] : rest, ...(Array.isArray(schema.enum) ? { enum: schema.enum.filter((one) => one !== null) } : {}) }, isNullable: true };
  }
  if (Array.isArray(schema.enum) && schema.enum.length > 1 && schema.enum.includes(null)) return { schema: { ...schema, enum: schema.enum.filter((one) => one !== null) }, isNullable: true };
  return { schema, isNullable: false };
}

/** [[value, text], …] if there is only a choice, else null. */
export function choices(schema, root) {
  if ("const" in schema) return [[schema.const, schema.title ?? written(schema.const)]];
  if (Array.isArray(schema.enum)) return schema.enum.map((one, at) => [one, String(schema.enumNames?.[at] ?? written(one))]);
  const branches = schema.oneOf ?? schema.anyOf;
  if (!Array.isArray(branches) || !branches.length) return null;
  const all = branches.map((one) => plain(one, root));
  if (!all.every((one) => one !== null && ("const" in one || Array.isArray(one.enum)))) return null;
  return all.flatMap((one) => ("const" in one ? [[one.const, String(one.title ?? written(one.const))]] : one.enum.map((value) => [value, written(value)])));
}

const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** The branches of a union as schemas, or null. Several types are a union of them. */
export function branches(schema) {
  for (const word of ["oneOf", "anyOf"]) {
    if (!Array.isArray(schema[word]) || !schema[word].length) continue;
    const { [word]: all, title, description, default: _, ...beside } = schema;
    return all.map((one) => (Object.keys(beside).length && isObject(one) ? { allOf: [beside, one], title: one.title } : one));
  }
  if (Array.isArray(schema.type) && schema.type.length > 1) return schema.type.map((type) => ({ ...schema, type, title: undefined, description: undefined, default: undefined }));
  return null;
}

/** The type that a schema means, also where it does not say so. */
export function typeOf(schema) {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type) return type;
  if (schema.properties || schema.patternProperties || isObject(schema.additionalProperties) || schema.required) return "object";
  if (schema.items || schema.prefixItems) return "array";
  if ("minLength" in schema || "pattern" in schema || "format" in schema || "contentEncoding" in schema) return "string";
  if ("minimum" in schema || "maximum" in schema || "multipleOf" in schema) return "number";
  return "";
}

const KINDS = {
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: Number.isInteger,
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
  array: Array.isArray,
  object: isObject,
};
export const isKind = (value, type) => KINDS[type]?.(value) ?? true;

/** Whether a value looks like one of this schema: enough to tell the branches of a union apart. */
export function fits(given, value, root, depth = 0) {
  if (depth === 0) fitting = steps = MOST_FITTING;
  fitting -= 1;
  if (depth > DEEP || fitting < 0) return true;
  const schema = plain(given, root, 1);
  if (schema === null) return false;
  const types = [schema.type ?? []].flat();
  if (types.length && !types.some((type) => isKind(value, type))) return false;
  if ("const" in schema && !same(schema.const, value)) return false;
  if (Array.isArray(schema.enum) && !schema.enum.some((one) => same(one, value))) return false;
  for (const word of ["anyOf", "oneOf"]) if (Array.isArray(schema[word]) && !schema[word].some((one) => fits(one, value, root, depth + 1))) return false;
  if (isObject(value)) {
    const properties = schema.properties ?? {};
    if ((schema.required ?? []).some((name) => !Object.hasOwn(value, name))) return false;
    for (const [name, one] of Object.entries(value)) {
      if (Object.hasOwn(properties, name)) { if (!fits(properties[name], one, root, depth + 1)) return false; } else if (!fits(schemaOfMember(schema, name) ?? false, one, root, depth + 1)) return false;
    }
  }
  if (Array.isArray(value)) {
    const first = schema.prefixItems ?? [];
    if (!value.every((one, at) => fits(first[at] ?? schema.items ?? true, one, root, depth + 1))) return false;
  }
  return !objection(schema, value);
}

/** The schema of a member that `properties` does not name; null if there may be none. */
export function schemaOfMember(schema, name) {
  for (const [pattern, one] of Object.entries(schema.patternProperties ?? {})) if (matches(pattern, name)) return one;
  return schema.additionalProperties === false ? null : schema.additionalProperties ?? {};
}

/** What a value breaks of its schema's limits, in words; "" if nothing. */
export function objection(schema, value) {
  if (typeof value === "string") return ofText(schema, value);
  if (typeof value === "number") return ofNumber(schema, value);
  if (Array.isArray(value)) {
    if (value.length < schema.minItems) return `At least ${plural(schema.minItems, "item")}.`;
    if (value.length > schema.maxItems) return `At most ${plural(schema.maxItems, "item")}.`;
    if (schema.uniqueItems && new Set(value.map((one) => JSON.stringify(one))).size < value.length) return "Each item only once.";
  } else if (isObject(value)) {
    const count = Object.keys(value).length;
    if (count < schema.minProperties) return `At least ${plural(schema.minProperties, "member")}.`;
    if (count > schema.maxProperties) return `At most ${plural(schema.maxProperties, "member")}.`;
  }
  return "";
}

const FORMATS = {
  email: [/^[^\s@]+@[^\s@]+$/, "an e-mail address"],
  uuid: [/^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i, "a UUID"],
  ipv4: [/^(\d{1,3}\.){3}\d{1,3}$/, "an IPv4 address"],
  ipv6: [/^[\da-f:.]+$/i, "an IPv6 address"],
  date: [/^\d{4}-\d\d-\d\d$/, "a date (2026-01-31)"],
  time: [/^\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?$/i, "a time (14:30:00Z)"],
  "date-time": [/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?$/i, "a date and time (2026-01-31T14:30:00Z)"],
  duration: [/^-?P(?=.)(\d+(\.\d+)?[YMWD])*(T(\d+(\.\d+)?[HMS])+)?$/, "a duration (PT1H30M)"],
};

function ofText(schema, text) {
  const length = [...text].length;
  if (length < schema.minLength) return `At least ${plural(schema.minLength, "character")}.`;
  if (length > schema.maxLength) return `At most ${plural(schema.maxLength, "character")}; this has ${length.toLocaleString("en")}.`;
  if (typeof schema.pattern === "string" && !matches(schema.pattern, text)) return `Must fit the pattern ${clip(schema.pattern, 80)}`;
  const [looks, name] = FORMATS[schema.format] ?? [];
  if (looks && !looks.test(text)) return `Must be ${name}.`;
  if (["uri", "url", "iri"].includes(schema.format) && !URL.canParse(text)) return "Must be an address with a scheme (https://…).";
  return "";
}

function ofNumber(schema, value) {
  if (value < schema.minimum) return `At least ${schema.minimum}.`;
  if (value > schema.maximum) return `At most ${schema.maximum}.`;
  if (value <= schema.exclusiveMinimum) return `More than ${schema.exclusiveMinimum}.`;
  if (value >= schema.exclusiveMaximum) return `Less than ${schema.exclusiveMaximum}.`;
  const times = value / schema.multipleOf;
  if (schema.multipleOf && Math.abs(times - Math.round(times)) > 1e-9 * Math.max(1, Math.abs(times))) return `A multiple of ${schema.multipleOf}.`;
  return "";
}

/** A few words on what may be written: "integer · 1 to 10". */
export function inWords(schema) {
  const words = [];
  const types = [schema.type ?? []].flat().join(" or ");
  if (types) words.push(schema.contentEncoding === "base64" ? "file" : types);
  if (schema.format && types !== schema.format) words.push(schema.format);
  const { minimum: low, maximum: high } = schema;
  if (low !== undefined && high !== undefined) words.push(`${low} to ${high}`);
  else if (low !== undefined) words.push(`from ${low}`);
  else if (high !== undefined) words.push(`up to ${high}`);
  if (schema.contentMediaType) words.push(schema.contentMediaType);
  return words.join(" · ");
}
