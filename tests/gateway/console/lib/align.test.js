// Two runs side by side.

import assert from "node:assert/strict";
import { test } from "node:test";

import { align, answerOf, edits, marksOf, wordDifference } from "../../../../gateway/console/static/lib/align.js";
import { answer, created, ended, started, traceOf } from "./records.js";

const tool = (seconds, name, input) => [
  [seconds, "tool_started", { call_id: `${name} ${seconds}`, name, input }],
  [seconds + 0.2, "tool_ended", { call_id: `${name} ${seconds}`, name }],
];

test("runs are aligned by the kinds of their events", () => {
  const one = traceOf(created, started(0.1), ...tool(0.2, "search", { q: "rain" }), ...answer, ended(4));
  const other = traceOf(
    created,
    started(0.5),
    ...tool(0.6, "search", { q: "snow" }),
    ...tool(0.8, "map", null),
    ...answer,
    ended(9),
  );
  const pairs = align(marksOf(one), marksOf(other));
  assert.deepEqual(
    pairs.map((pair) => `${pair.name}: ${pair.a ? "a" : "-"}${pair.b ? "b" : "-"}${pair.same ? " same" : ""}`),
    ["queued: ab same", "attempt 1: ab same", "search: ab", "map: -b", "message: ab same"],
  );
  assert.equal(pairs[2].b.offset, 0.6);
  assert.ok(Math.abs(pairs[2].a.seconds - 0.2) < 1e-6);
});

test("the answer of a run is the text of its messages", () => {
  assert.equal(answerOf(traceOf(created, started(0), ...answer, ended(4))), "It will rain");
  assert.equal(answerOf(traceOf(created, started(0), ...answer, started(5, 2), ...[], ended(6))), "");
});

test("texts differ by words", () => {
  assert.deepEqual(wordDifference("It will rain today", "It will snow today"), [
    { text: "It will ", side: "both" },
    { text: "rain", side: "a" },
    { text: "snow", side: "b" },
    { text: " today", side: "both" },
  ]);
});

test("an edit script contains each item of both lists once, in order", () => {
  const cases = [
    ["", ""],
    ["abc", ""],
    ["", "abc"],
    ["abcabba", "cbabac"],
    ["kitten", "sitting"],
    ["aaaa", "aa"],
  ];
  for (const [a, b] of cases) {
    const pairs = edits([...a], [...b], Object.is);
    const left = pairs.filter(([one]) => one !== null).map(([one]) => one);
    const right = pairs.filter(([, other]) => other !== null).map(([, other]) => other);
    assert.deepEqual(
      left,
      [...a].map((_, i) => i),
      `${a} → ${b}`,
    );
    assert.deepEqual(
      right,
      [...b].map((_, i) => i),
      `${a} → ${b}`,
    );
    for (const [one, other] of pairs) if (one !== null && other !== null) assert.equal(a[one], b[other]);
  }
  assert.equal(
    edits([..."kitten"], [..."sitting"], Object.is).filter(([one, other]) => one !== null && other !== null).length,
    4,
  );
});

test("lists with too many differences are still complete", () => {
  const a = Array.from({ length: 700 }, (_, i) => `a${i}`);
  const b = Array.from({ length: 700 }, (_, i) => `b${i}`);
  assert.equal(edits(a, b, Object.is).length, 1400);
});
