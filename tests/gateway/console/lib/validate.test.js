import assert from "node:assert/strict";
import { test } from "node:test";

import { errorText, validate } from "../../../../gateway/console/static/lib/validate.js";

/** Schema, value, and the errors in words. */
const CASES = [
  [{ type: "string", maxLength: 2 }, "äöü", ["The value must have at most 2 characters, has 3"]],
  [{ type: "string", maxLength: 2 }, "😀😀", []],
  [{ type: "string", minLength: 1 }, "", ["The value must have at least 1 character, has 0"]],
  [{ type: "string", format: "email" }, "ann", ["The value must be an e-mail address"]],
  [{ type: "string", format: "date" }, "2026-13-01", ["The value must be a date such as 2026-11-27"]],
  [{ type: "string", format: "unknown" }, "x", []],
  [{ type: "string", pattern: "^[0-9]{5}$" }, "123", ["The value must match the pattern ^[0-9]{5}$"]],
  [{ type: "string", pattern: "(" }, "x", []],
  [{ type: "integer" }, 1.5, ["The value must be a whole number"]],
  [{ type: "number", minimum: 1, exclusiveMaximum: 3 }, 3, ["The value must be less than 3"]],
  [{ type: "number", multipleOf: 0.1 }, 0.3, []],
  [{ type: ["string", "null"] }, null, []],
  [{ type: ["string", "null"] }, 1, ["The value must be text or null"]],
  [{ enum: ["a", { b: [1] }] }, { b: [1] }, []],
  [{ enum: ["a"] }, "b", ['The value must be one of "a"']],
  [{ const: 1 }, 2, ["The value must be 1"]],
  [{ type: "array", items: { type: "string" }, minItems: 3, uniqueItems: true }, ["a", 1, "a"], ["The value must not repeat an item", "item 2 must be text"]],
  [{ type: "array", items: { type: "string" }, maxItems: 1 }, ["a", "b"], ["The value must have at most 1 item, has 2"]],
  [{ type: "object", required: ["a"], properties: { a: {} } }, {}, ["a is required"]],
  [{ type: "object", properties: { a: { properties: { b: { type: "number" } } } } }, { a: { b: "x" } }, ["a › b must be a number"]],
  [{ type: "object", properties: {}, additionalProperties: false }, { a: 1 }, ["a is not allowed"]],
  [{ type: "object", additionalProperties: { type: "number" } }, { a: "x" }, ["a must be a number"]],
  [{ oneOf: [{ type: "number" }, { type: "integer" }] }, 1, ["The value fits 2 alternatives, but must fit one"]],
  [{ anyOf: [{ type: "number" }, { type: "boolean" }] }, "x", ["The value fits none of the alternatives"]],
  [{ not: { type: "string" } }, "x", ["The value is an excluded value"]],
  [{ $ref: "#/$defs/a", $defs: { a: { type: "string" } } }, 1, ["The value must be text"]],
  [{ type: "string" }, undefined, ["The value is required"]],
  [null, "anything", []],
  [false, 1, ["The value is not allowed"]],
];

test("errors name the place, the limit and the value", () => {
  for (const [schema, value, expected] of CASES) {
    assert.deepEqual(validate(schema, value).map(errorText), expected, `${JSON.stringify(schema)} and ${JSON.stringify(value)}`);
  }
});

test("a pattern of exponential time does not block", () => {
  for (const pattern of ["^(a+)+$", "(a|a)*$", "a*a*a*a*a*b"]) {
    assert.deepEqual(validate({ type: "string", pattern }, `${"a".repeat(400)}!`), [], pattern);
  }
});

test("a deep value ends", () => {
  const list = { type: "array", items: { $ref: "#" } };
  let value = [];
  for (let depth = 0; depth < 5000; depth++) value = [value];
  assert.deepEqual(validate(list, value), []);
});
