/** OpenAPI 3 documents, as the page of the API reads them. No DOM. */

const METHODS = ["get", "post", "put", "patch", "delete", "head", "options"];

/**
 * @typedef {object} ApiOperation
 * @property {string} method
 * @property {string} path
 * @property {string} tag
 * @property {string} summary
 * @property {string} description
 * @property {any[]} parameters
 * @property {any} body Request body, resolved.
 * @property {[string, any][]} responses Status and response, resolved.
 */

/**
 * Return the value that a local `$ref` names, or the value itself. References to other documents stay.
 *
 * @param {any} document
 * @param {any} value
 */
export function resolve(document, value) {
  let current = value;
  for (let depth = 0; depth < 20 && typeof current?.$ref === "string" && current.$ref.startsWith("#/"); depth += 1) {
    const names = current.$ref.slice(2).split("/").map((/** @type {string} */ name) => decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~"));
    current = names.reduce((/** @type {any} */ node, /** @type {string} */ name) => node?.[name], document);
  }
  return current;
}

/**
 * Return the operations of a document, in its order.
 *
 * @param {any} document
 * @returns {ApiOperation[]}
 */
export function operationsOf(document) {
  const operations = [];
  for (const [path, item] of Object.entries(document.paths ?? {})) {
    for (const method of METHODS) {
      const operation = item[method];
      if (!operation) continue;
      operations.push({
        method: method.toUpperCase(),
        path,
        tag: operation.tags?.[0] ?? "",
        summary: operation.summary ?? "",
        description: operation.description ?? "",
        parameters: [...(item.parameters ?? []), ...(operation.parameters ?? [])].map((each) => resolve(document, each)),
        body: resolve(document, operation.requestBody) ?? null,
        responses: /** @type {[string, any][]} */ (Object.entries(operation.responses ?? {}).map(([status, each]) => [status, resolve(document, each)])),
      });
    }
  }
  return operations;
}

/**
 * Return the schema of a body's first media type, with its name if it is a reference.
 *
 * @param {any} body
 * @returns {{type: string, schema: any, name: string} | null}
 */
export function contentOf(body) {
  const [found] = Object.entries(body?.content ?? {});
  if (!found) return null;
  const [type, { schema }] = /** @type {[string, any]} */ (found);
  return { type, schema, name: nameOf(schema) };
}

/** Return the last name of a reference. @param {any} schema */
const nameOf = (schema) => (typeof schema?.$ref === "string" ? (schema.$ref.split("/").pop() ?? "") : "");

/**
 * Return the type of a schema in a few words: "string", "array of Run", "string or null".
 *
 * @param {any} schema
 * @returns {string}
 */
export function typeText(schema) {
  if (schema === undefined || schema === true) return "anything";
  if (schema === false) return "nothing";
  if (schema.$ref) return nameOf(schema);
  const union = schema.anyOf ?? schema.oneOf;
  if (union) return [...new Set(union.map(typeText))].join(" or ");
  if (schema.allOf?.length === 1) return typeText(schema.allOf[0]);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((/** @type {unknown} */ each) => JSON.stringify(each)).join(" or ");
  if (schema.type === "array") return `array of ${typeText(schema.items)}`;
  if (Array.isArray(schema.type)) return schema.type.join(" or ");
  return `${schema.type ?? "anything"}${schema.format ? ` (${schema.format})` : ""}`;
}

/**
 * Return true if a schema has members to show, itself or in one of its choices.
 *
 * @param {any} document
 * @param {any} schema
 * @param {number} [depth]
 * @returns {boolean}
 */
export function hasMembers(document, schema, depth = 5) {
  const found = resolve(document, schema);
  if (!found || typeof found !== "object" || depth === 0) return false;
  const inner = [...(found.anyOf ?? found.oneOf ?? found.allOf ?? []), ...(found.type === "array" ? [found.items] : [])];
  return Object.keys(found.properties ?? {}).length > 0 || inner.some((each) => hasMembers(document, each, depth - 1));
}
