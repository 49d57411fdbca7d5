// OpenAPI documents.

import assert from "node:assert/strict";
import { test } from "node:test";

import { contentOf, hasMembers, operationsOf, resolve, typeText } from "../../../../gateway/console/static/lib/openapi.js";

const document = {
  components: {
    parameters: { Run: { name: "run_id", in: "path", required: true } },
    schemas: { Run: { type: "object", properties: { id: { type: "string" } } }, "a/b": { type: "null" }, Loop: { $ref: "#/components/schemas/Loop" } },
  },
  paths: {
    "/runs/{run_id}": {
      parameters: [{ $ref: "#/components/parameters/Run" }],
      get: { tags: ["Runs"], summary: "Get a run", responses: { 200: { content: { "application/json": { schema: { $ref: "#/components/schemas/Run" } } } } } },
      delete: { responses: {} },
    },
  },
};

test("operations have their parameters, bodies and responses", () => {
  const [get, remove] = operationsOf(document);
  assert.deepEqual([get.method, get.path, get.tag, get.parameters[0].name], ["GET", "/runs/{run_id}", "Runs", "run_id"]);
  assert.deepEqual(contentOf(get.responses[0][1]), { type: "application/json", schema: { $ref: "#/components/schemas/Run" }, name: "Run" });
  assert.deepEqual([remove.method, remove.body], ["DELETE", null]);
  assert.deepEqual(operationsOf({}), []);
});

test("references are resolved, and circles end", () => {
  assert.equal(resolve(document, { $ref: "#/components/schemas/a~1b" }).type, "null");
  assert.equal(resolve(document, { $ref: "#/nowhere/at/all" }), undefined);
  assert.ok(resolve(document, { $ref: "#/components/schemas/Loop" }).$ref);
});

test("a schema has a type in a few words", () => {
  for (const [schema, text] of [
    [{ type: "string", format: "uuid" }, "string (uuid)"],
    [{ anyOf: [{ $ref: "#/components/schemas/Run" }, { type: "null" }] }, "Run or null"],
    [{ type: "array", items: { $ref: "#/components/schemas/Run" } }, "array of Run"],
    [{ enum: ["a", 1] }, '"a" or 1'],
    [undefined, "anything"],
    [false, "nothing"],
  ]) {
    assert.equal(typeText(schema), text);
  }
});

test("only schemas with members unfold", () => {
  const run = { $ref: "#/components/schemas/Run" };
  assert.ok(hasMembers(document, { anyOf: [{ type: "array", items: run }, { type: "null" }] }));
  assert.ok(!hasMembers(document, { anyOf: [{ type: "string" }, { type: "null" }] }));
  assert.ok(!hasMembers(document, { $ref: "#/components/schemas/Loop" }));
});
