/** Errors of a value under a JSON Schema, in words for the person who fills in a form. */

import { isObject, resolve } from "./schema.js";

/** @typedef {import("./schema.js").Schema} Schema */
/** @typedef {{path: (string | number)[], message: string}} SchemaError */

/** Depth at which validation of a recursive value stops. Chosen. */
const MAX_DEPTH = 60;

/**
 * Return the errors of a value. An empty list means that no known keyword is violated.
 *
 * @param {Schema | null | undefined} schema
 * @param {unknown} value
 * @returns {SchemaError[]}
 */
export function validate(schema, value) {
  return check(schema ?? true, value, { root: schema ?? true, path: [] });
}

/** @typedef {{root: Schema, path: (string | number)[]}} Place */

/** @param {Schema} given @param {unknown} value @param {Place} place @returns {SchemaError[]} */
function check(given, value, place) {
  const schema = resolve(given, place.root);
  if (schema === false) return [error(place, "is not allowed")];
  if (!isObject(schema) || place.path.length > MAX_DEPTH) return [];
  if (value === undefined) return [error(place, "is required")];
  const wrong = typeError(schema, value);
  if (wrong) return [error(place, wrong)];
  return [
    ...checkChoices(schema, value, place),
    ...checkAlternatives(schema, value, place),
    ...(typeof value === "string" ? checkText(schema, value, place) : []),
    ...(typeof value === "number" ? checkNumber(schema, value, place) : []),
    ...(Array.isArray(value) ? checkList(schema, value, place) : []),
    ...(isObject(value) ? checkMembers(schema, value, place) : []),
  ];
}

/** @param {Place} place @param {string} message @returns {SchemaError} */
const error = (place, message) => ({ path: place.path, message });

/** @type {Record<string, (value: unknown) => boolean>} */
const TYPES = {
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: (value) => Number.isInteger(value),
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
  array: Array.isArray,
  object: isObject,
};
/** @type {Record<string, string>} */
const TYPE_NAMES = {
  string: "text",
  number: "a number",
  integer: "a whole number",
  boolean: "true or false",
  null: "null",
  array: "a list",
  object: "an object",
};

/** @param {Record<string, any>} schema @param {unknown} value */
function typeError({ type }, value) {
  const types = (Array.isArray(type) ? type : [type]).filter((name) => name in TYPES);
  if (!types.length || types.some((name) => TYPES[name](value))) return "";
  return `must be ${types.map((name) => TYPE_NAMES[name]).join(" or ")}`;
}

/** @param {unknown} one @param {unknown} other @returns {boolean} */
function isEqual(one, other) {
  if (Array.isArray(one)) return Array.isArray(other) && one.length === other.length && one.every((each, index) => isEqual(each, other[index]));
  if (!isObject(one) || !isObject(other)) return one === other;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => isEqual(one[name], other[name]));
}

/** @param {Record<string, any>} schema @param {unknown} value @param {Place} place */
function checkChoices(schema, value, place) {
  const errors = [];
  if (Array.isArray(schema.enum) && !schema.enum.some((each) => isEqual(each, value))) {
    errors.push(error(place, `must be one of ${schema.enum.map((each) => JSON.stringify(each)).join(", ")}`));
  }
  if ("const" in schema && !isEqual(schema.const, value)) {
    errors.push(error(place, `must be ${JSON.stringify(schema.const)}`));
  }
  return errors;
}

/** @param {Record<string, any>} schema @param {unknown} value @param {Place} place */
function checkAlternatives(schema, value, place) {
  /** @param {Schema} each */
  const isValid = (each) => check(each, value, place).length === 0;
  const errors = (Array.isArray(schema.allOf) ? schema.allOf : []).flatMap((each) => check(each, value, place));
  if (Array.isArray(schema.anyOf) && !schema.anyOf.some(isValid)) {
    errors.push(...closest(schema.anyOf, value, place));
  }
  if (Array.isArray(schema.oneOf)) {
    const matches = schema.oneOf.filter(isValid).length;
    if (matches === 0) errors.push(...closest(schema.oneOf, value, place));
    if (matches > 1) errors.push(error(place, `fits ${matches} alternatives, but must fit one`));
  }
  if (schema.not !== undefined && isValid(schema.not)) errors.push(error(place, "is an excluded value"));
  return errors;
}

/** Return the errors of the alternative with the fewest. @param {Schema[]} all @param {unknown} value @param {Place} place */
function closest(all, value, place) {
  const results = all.map((each) => check(each, value, place));
  const nested = results.filter((errors) => errors.some(({ path }) => path.length > place.path.length));
  if (nested.length === 1) return nested[0];
  return results.length === 1 ? results[0] : [error(place, "fits none of the alternatives")];
}

/** @type {Record<string, [RegExp, string]>} */
const FORMATS = {
  email: [/^[^\s@]+@[^\s@]+$/, "an e-mail address"],
  uri: [/^[a-z][a-z0-9+.-]*:\S+$/i, "a URL with its scheme"],
  date: [/^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$/, "a date such as 2026-11-27"],
  "date-time": [/^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/, "a time such as 2026-11-27T12:00:00Z"],
  uuid: [/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i, "a UUID"],
};

/** @param {Record<string, any>} schema @param {string} value @param {Place} place */
function checkText(schema, value, place) {
  const errors = [];
  const length = [...value].length;
  if (length < schema.minLength) errors.push(error(place, `must have at least ${characters(schema.minLength)}, has ${length}`));
  if (length > schema.maxLength) errors.push(error(place, `must have at most ${characters(schema.maxLength)}, has ${length}`));
  if (typeof schema.pattern === "string" && !matchesPattern(schema.pattern, value)) {
    errors.push(error(place, `must match the pattern ${schema.pattern}`));
  }
  const [expression, words] = FORMATS[schema.format] ?? [];
  if (expression && !expression.test(value)) errors.push(error(place, `must be ${words}`));
  return errors;
}

/** @param {number} number */
const characters = (number) => `${number} ${number === 1 ? "character" : "characters"}`;

/** @param {number} number */
const items = (number) => `${number} ${number === 1 ? "item" : "items"}`;

/** An invalid pattern matches everything: the gateway decides. @param {string} pattern @param {string} value */
function matchesPattern(pattern, value) {
  // A pattern of an agent may take exponential time, which would block the page. So repeated groups, and patterns with
  // many repetitions, are left to the gateway.
  const repetitions = pattern.match(/[+*}]/g)?.length ?? 0;
  if (value.length > 500 || repetitions > 3 || /\)[+*{]/.test(pattern)) return true;
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return true;
  }
}

/** @param {Record<string, any>} schema @param {number} value @param {Place} place */
function checkNumber(schema, value, place) {
  const errors = [];
  if (value < schema.minimum) errors.push(error(place, `must be at least ${schema.minimum}`));
  if (value > schema.maximum) errors.push(error(place, `must be at most ${schema.maximum}`));
  if (value <= schema.exclusiveMinimum) errors.push(error(place, `must be more than ${schema.exclusiveMinimum}`));
  if (value >= schema.exclusiveMaximum) errors.push(error(place, `must be less than ${schema.exclusiveMaximum}`));
  const steps = value / schema.multipleOf;
  if (schema.multipleOf > 0 && Math.abs(steps - Math.round(steps)) > 1e-9) {
    errors.push(error(place, `must be a multiple of ${schema.multipleOf}`));
  }
  return errors;
}

/** @param {Record<string, any>} schema @param {unknown[]} value @param {Place} place */
function checkList(schema, value, place) {
  const errors = [];
  const has = `has ${value.length}`;
  if (value.length < schema.minItems) errors.push(error(place, `must have at least ${items(schema.minItems)}, ${has}`));
  if (value.length > schema.maxItems) errors.push(error(place, `must have at most ${items(schema.maxItems)}, ${has}`));
  if (schema.uniqueItems === true && new Set(value.map((each) => JSON.stringify(each))).size < value.length) {
    errors.push(error(place, "must not repeat an item"));
  }
  const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  value.forEach((item, index) => {
    const of = first[index] ?? schema.items;
    if (of !== undefined && !Array.isArray(of)) errors.push(...check(of, item, { ...place, path: [...place.path, index] }));
  });
  return errors;
}

/** @param {Record<string, any>} schema @param {Record<string, unknown>} value @param {Place} place */
function checkMembers(schema, value, place) {
  const errors = [];
  const properties = isObject(schema.properties) ? schema.properties : {};
  for (const name of Array.isArray(schema.required) ? schema.required : []) {
    if (value[name] === undefined) errors.push(error({ ...place, path: [...place.path, name] }, "is required"));
  }
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue;
    const of = Object.hasOwn(properties, name) ? properties[name] : schema.additionalProperties;
    if (of === false && !schema.patternProperties) errors.push(error({ ...place, path: [...place.path, name] }, "is not allowed"));
    else if (of !== undefined && of !== false) errors.push(...check(of, member, { ...place, path: [...place.path, name] }));
  }
  return errors;
}

/**
 * Return an error as a sentence: "note must have at most 20 characters, has 24".
 *
 * @param {SchemaError} schemaError
 */
export function errorText({ path, message }) {
  const place = path.map((name) => (typeof name === "number" ? `item ${name + 1}` : name)).join(" › ");
  return `${place || "The value"} ${message}`;
}
