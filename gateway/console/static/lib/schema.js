/**
 * JSON Schema, as far as forms need it: a plan of fields, and the errors of a value.
 *
 * A schema that a form cannot show becomes a field of the kind `json`, which is a JSON editor. Keywords that this module
 * does not know are ignored here; the gateway checks all of them.
 */

/**
 * @typedef {Record<string, any> | boolean} Schema
 * @typedef {object} Field
 * @property {"text" | "number" | "boolean" | "choice" | "choices" | "object" | "array" | "variant" | "constant" | "json"} kind
 * @property {string} title
 * @property {string} description
 * @property {boolean} isRequired
 * @property {boolean} isNullable
 * @property {Schema} schema The schema, with its local references resolved at this level.
 * @property {unknown} [initial] Default value.
 * @property {string} [format] Of texts: `long`, `email`, `uri`, `date`, `date-time`, `time`, `password` or another.
 * @property {boolean} [isInteger]
 * @property {{value: unknown, label: string, description?: string}[]} [choices]
 * @property {Record<string, Field>} [members] Of objects.
 * @property {boolean} [isOpen] Of objects: other members are allowed.
 * @property {Field} [item] Of arrays.
 * @property {Field[]} [variants] Of `variant`: alternatives, by title.
 */

/** Depth from which a schema is shown as JSON. Also ends recursive references. Chosen. */
const MAX_DEPTH = 6;
/** Length from which a text gets several lines. Chosen. */
const LONG = 200;
/** Keywords that a form cannot show, because they tie several members together. */
const UNSUPPORTED = ["not", "if", "then", "else", "dependentSchemas", "dependentRequired", "patternProperties"];

/**
 * Return the field that shows a schema.
 *
 * @param {Schema | null | undefined} schema
 * @returns {Field}
 */
export function planForm(schema) {
  return plan(schema ?? {}, schema ?? {}, { name: "", isRequired: true, depth: 0 });
}

/**
 * @param {Schema} given
 * @param {Schema} root
 * @param {{name: string, isRequired: boolean, depth: number}} place
 * @returns {Field}
 */
function plan(given, root, { name, isRequired, depth }) {
  const { schema, isNullable, isLost } = simplify(given, root);
  const of = typeof schema === "object" ? schema : {};
  /** @type {Field} */
  const field = {
    kind: "json",
    title: text(of.title) || name,
    description: text(of.description),
    isRequired,
    isNullable,
    schema,
    initial: of.default,
  };
  if (isLost || typeof schema !== "object" || depth > MAX_DEPTH) return field;
  if (UNSUPPORTED.some((keyword) => keyword in of)) return field;
  return { ...field, ...planKind(of, root, name, depth) };
}

/**
 * Return the kind of a field, and the members of that kind.
 *
 * @param {Record<string, any>} schema
 * @param {Schema} root
 * @param {string} name
 * @param {number} depth
 * @returns {Partial<Field>}
 */
function planKind(schema, root, name, depth) {
  if ("const" in schema) return { kind: "constant", initial: schema.const };
  const choices = choicesOf(schema, root);
  if (choices) return { kind: "choice", choices };
  const alternatives = schema.oneOf ?? schema.anyOf;
  if (alternatives !== undefined) return planVariants(schema, alternatives, root, name, depth);
  switch (schema.type ?? (schema.properties ? "object" : undefined)) {
    case "string":
      return { kind: "text", format: formatOf(schema) };
    case "number":
    case "integer":
      return { kind: "number", isInteger: schema.type === "integer" };
    case "boolean":
      return { kind: "boolean" };
    case "object":
      return planObject(schema, root, depth);
    case "array":
      return planArray(schema, root, name, depth);
    default:
      return { kind: "json" };
  }
}

/** @param {Record<string, any>} schema @param {Schema} root @param {number} depth @returns {Partial<Field>} */
function planObject(schema, root, depth) {
  const properties = Object.entries(isObject(schema.properties) ? schema.properties : {});
  if (!properties.length) return { kind: "json" };
  const required = Array.isArray(schema.required) ? schema.required : [];
  if (required.some((name) => !Object.hasOwn(schema.properties, name))) return { kind: "json" };
  const members = properties.map(([name, member]) => [
    name,
    plan(member, root, { name, isRequired: required.includes(name), depth: depth + 1 }),
  ]);
  return { kind: "object", members: Object.fromEntries(members), isOpen: schema.additionalProperties !== false };
}

/**
 * @param {Record<string, any>} schema @param {Schema} root @param {string} name @param {number} depth
 * @returns {Partial<Field>}
 */
function planArray(schema, root, name, depth) {
  if ("prefixItems" in schema || !isObject(schema.items)) return { kind: "json" };
  const choices = schema.uniqueItems === true ? choicesOf(simplify(schema.items, root).schema, root) : null;
  if (choices) return { kind: "choices", choices };
  const item = plan(schema.items, root, { name: `${name || "item"}`, isRequired: true, depth: depth + 1 });
  return { kind: "array", item };
}

/**
 * @param {Record<string, any>} schema @param {unknown} alternatives @param {Schema} root @param {string} name
 * @param {number} depth
 * @returns {Partial<Field>}
 */
function planVariants(schema, alternatives, root, name, depth) {
  if (!Array.isArray(alternatives) || alternatives.length === 0 || schema.properties) return { kind: "json" };
  const { oneOf, anyOf, title, description, default: initial, ...shared } = schema;
  const variants = alternatives.map((each, index) => {
    const own = isObject(each) ? { ...shared, ...each } : each;
    return plan(own, root, { name: `${name || "form"} ${index + 1}`, isRequired: true, depth: depth + 1 });
  });
  for (const variant of variants) variant.title = variantTitle(variant);
  return { kind: "variant", variants };
}

/** @param {Field} variant */
function variantTitle(variant) {
  const own = isObject(variant.schema) ? text(variant.schema.title) : "";
  if (own) return own;
  const names = { text: "text", number: "number", boolean: "yes or no", array: "list", object: "object" };
  return names[/** @type {keyof typeof names} */ (variant.kind)] ?? variant.title;
}

/**
 * Return the values to choose from, with their labels: `enum` with `enumNames`, or alternatives that are constants.
 *
 * @param {Schema} schema
 * @param {Schema} root
 */
function choicesOf(schema, root) {
  if (!isObject(schema)) return null;
  if (Array.isArray(schema.enum)) {
    const names = schema.enumNames ?? schema["x-enumNames"];
    return schema.enum.map((value, index) => ({ value, label: text(names?.[index]) || label(value) }));
  }
  const alternatives = schema.oneOf ?? schema.anyOf;
  if (!Array.isArray(alternatives) || !alternatives.length) return null;
  const constants = alternatives.map((each) => simplify(each, root).schema);
  if (!constants.every((each) => isObject(each) && "const" in each)) return null;
  return constants.map((each) => {
    const of = /** @type {Record<string, any>} */ (each);
    return { value: of.const, label: text(of.title) || label(of.const), description: text(of.description) };
  });
}

/** @param {Record<string, any>} schema */
function formatOf(schema) {
  if (typeof schema.format === "string") return schema.format;
  return schema.maxLength > LONG || schema.contentMediaType ? "long" : "";
}

/**
 * Resolve references, merge `allOf`, and split off null.
 *
 * @param {Schema} given
 * @param {Schema} root
 * @returns {{schema: Schema, isNullable: boolean, isLost: boolean}} `isLost` is true if a form cannot show it.
 */
function simplify(given, root) {
  let isNullable = false;
  let schema = resolve(given, root);
  if (!isObject(schema)) return { schema, isNullable, isLost: true };
  if (Array.isArray(schema.allOf)) {
    const merged = mergeAll(schema, root);
    if (!merged) return { schema, isNullable, isLost: true };
    schema = merged;
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((/** @type {string} */ type) => type !== "null");
    isNullable = types.length < schema.type.length;
    if (types.length === 1) schema = { ...schema, type: types[0] };
    else return { schema: splitTypes(schema, types), isNullable, isLost: types.length === 0 };
  }
  for (const keyword of ["oneOf", "anyOf"]) {
    if (!Array.isArray(schema[keyword])) continue;
    const rest = schema[keyword].filter((/** @type {Schema} */ each) => !isNull(resolve(each, root)));
    if (rest.length === schema[keyword].length) continue;
    isNullable = true;
    const { [keyword]: _, ...shared } = schema;
    const only = rest.length === 1 ? resolve(rest[0], root) : null;
    if (isObject(only)) return { ...simplify({ ...only, ...shared }, root), isNullable };
    schema = { ...shared, [keyword]: rest };
  }
  if (Array.isArray(schema.enum) && schema.enum.includes(null)) {
    isNullable = true;
    schema = { ...schema, enum: schema.enum.filter((/** @type {unknown} */ value) => value !== null) };
  }
  return { schema, isNullable, isLost: false };
}

/** @param {Record<string, any>} schema @param {string[]} types */
function splitTypes({ type: _, ...shared }, types) {
  return { title: shared.title, description: shared.description, anyOf: types.map((type) => ({ ...shared, type })) };
}

/** @param {Schema} schema */
const isNull = (schema) => isObject(schema) && (schema.type === "null" || schema.const === null);

/**
 * Merge the members of `allOf`, or return null if two of them have the same keyword with different values.
 *
 * @param {Record<string, any>} schema
 * @param {Schema} root
 */
function mergeAll({ allOf, ...merged }, root) {
  for (const each of allOf) {
    const part = resolve(each, root);
    if (!isObject(part) || "allOf" in part) return null;
    for (const [keyword, value] of Object.entries(part)) {
      if (keyword === "properties") merged.properties = { ...merged.properties, ...value };
      else if (keyword === "required") merged.required = [...(merged.required ?? []), ...value];
      else if (!(keyword in merged)) merged[keyword] = value;
      else if (JSON.stringify(merged[keyword]) !== JSON.stringify(value) && !ANNOTATIONS.has(keyword)) return null;
    }
  }
  return merged;
}

const ANNOTATIONS = new Set(["title", "description", "default", "examples"]);

/**
 * Follow local references. A reference to another document, or a circle, returns false, which no value matches.
 *
 * @param {Schema} schema
 * @param {Schema} root
 * @returns {Schema}
 */
export function resolve(schema, root) {
  for (let hops = 0; isObject(schema) && typeof schema.$ref === "string"; hops++) {
    if (hops > 20 || !schema.$ref.startsWith("#")) return false;
    const { $ref, ...beside } = schema;
    /** @type {any} */
    let target = root;
    for (const escaped of decodeURIComponent($ref.slice(1)).split("/").slice(1)) {
      const name = escaped.replaceAll("~1", "/").replaceAll("~0", "~");
      target = isObject(target) || Array.isArray(target) ? /** @type {any} */ (target)[name] : undefined;
    }
    if (target === undefined) return false;
    schema = isObject(target) ? { ...target, ...beside } : target;
  }
  return schema;
}

/**
 * Return the value with which a form starts: defaults, constants, and required objects and lists.
 *
 * @param {Field} field
 * @returns {any} undefined if the member is left out at first.
 */
export function initialValue(field) {
  if (field.initial !== undefined) return structuredClone(field.initial);
  if (field.kind === "object" && field.isRequired && field.members) {
    const members = Object.entries(field.members).map(([name, member]) => [name, initialValue(member)]);
    return Object.fromEntries(members.filter(([, value]) => value !== undefined));
  }
  if ((field.kind === "array" || field.kind === "choices") && field.isRequired) return [];
  if (field.kind === "variant" && field.isRequired && field.variants) return initialValue(field.variants[0]);
  return undefined;
}

/** @param {unknown} value @returns {value is Record<string, any>} */
export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @param {unknown} value */
const text = (value) => (typeof value === "string" ? value : "");

/** @param {unknown} value */
const label = (value) => (typeof value === "string" ? value : JSON.stringify(value));
