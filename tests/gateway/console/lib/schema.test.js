import assert from "node:assert/strict";
import { test } from "node:test";

import { initialValue, planForm } from "../../../../gateway/console/static/lib/schema.js";

/** Schemas, and the kind and other members of their fields. */
const PLANS = [
  [{ type: "string" }, { kind: "text", format: "" }],
  [{ type: "string", format: "date" }, { kind: "text", format: "date" }],
  [{ type: "string", maxLength: 5000 }, { kind: "text", format: "long" }],
  [{ type: "integer", default: 3 }, { kind: "number", isInteger: true, initial: 3 }],
  [{ type: "boolean", title: "Sure?" }, { kind: "boolean", title: "Sure?" }],
  [{ type: ["string", "null"] }, { kind: "text", isNullable: true }],
  [{ anyOf: [{ type: "integer" }, { type: "null" }], title: "Age" }, { kind: "number", isNullable: true, title: "Age" }],
  [{ enum: ["a", "b"], enumNames: ["First", "Second"] }, { kind: "choice", choices: [{ value: "a", label: "First" }, { value: "b", label: "Second" }] }],
  [{ enum: ["a", null] }, { kind: "choice", isNullable: true, choices: [{ value: "a", label: "a" }] }],
  [{ oneOf: [{ const: 1, title: "One" }, { const: 2 }] }, { kind: "choice", choices: [{ value: 1, label: "One", description: "" }, { value: 2, label: "2", description: "" }] }],
  [{ const: "yes" }, { kind: "constant", initial: "yes" }],
  [{ type: "array", items: { enum: ["x"] }, uniqueItems: true }, { kind: "choices" }],
  [{ type: "array", items: { type: "string" } }, { kind: "array" }],
  [{ type: ["string", "integer"] }, { kind: "variant" }],
  [{ $ref: "#/$defs/a~1b", $defs: { "a/b": { type: "boolean" } } }, { kind: "boolean" }],
  [{ allOf: [{ type: "object", properties: { a: { type: "string" } } }, { properties: { b: { type: "number" } } }] }, { kind: "object" }],
  // No form can show these, so they are JSON.
  [null, { kind: "json" }],
  [true, { kind: "json" }],
  [{}, { kind: "json" }],
  [{ type: "object" }, { kind: "json" }],
  [{ type: "object", properties: { a: {} }, required: ["b"] }, { kind: "json" }],
  [{ type: "object", properties: { a: {} }, if: {}, then: {} }, { kind: "json" }],
  [{ type: "object", properties: { a: {} }, oneOf: [{ required: ["a"] }] }, { kind: "json" }],
  [{ type: "array", prefixItems: [{ type: "string" }] }, { kind: "json" }],
  [{ $ref: "https://example.com/schema" }, { kind: "json" }],
  [{ $ref: "#/$defs/none" }, { kind: "json" }],
  [{ $ref: "#" }, { kind: "json" }],
  [{ allOf: [{ type: "string" }, { type: "number" }] }, { kind: "json" }],
];

test("each schema has its field, or a JSON editor", () => {
  for (const [schema, expected] of PLANS) {
    const field = planForm(schema);
    for (const [name, value] of Object.entries(expected)) {
      assert.deepEqual(field[name], value, `${name} of ${JSON.stringify(schema)}`);
    }
  }
});

test("a recursive schema ends in a JSON editor", () => {
  const tree = { type: "object", properties: { name: { type: "string" }, child: { $ref: "#" } } };
  let field = planForm(tree);
  let depth = 0;
  for (; field.kind === "object"; depth++) field = field.members.child;
  assert.equal(field.kind, "json");
  assert.ok(depth > 2 && depth < 20);
});

test("a form starts with defaults and required containers", () => {
  const schema = {
    type: "object",
    required: ["address", "tags", "kind"],
    properties: {
      address: { type: "object", required: ["street"], properties: { street: { type: "string" }, country: { type: "string", default: "DE" } } },
      other: { type: "object", properties: { a: { type: "string" } } },
      tags: { type: "array", items: { type: "string" } },
      kind: { const: "order" },
      count: { type: "integer", default: 2 },
    },
  };
  assert.deepEqual(initialValue(planForm(schema)), { address: { country: "DE" }, tags: [], kind: "order", count: 2 });
});
