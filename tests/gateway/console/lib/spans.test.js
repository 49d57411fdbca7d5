// Spans, rows and axis of a run.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Axis, niceTicks } from "../../../../gateway/console/static/lib/axis.js";
import { RunLog, unfold } from "../../../../gateway/console/static/lib/log.js";
import { lineOf, positionOf, revealing, rowsOf } from "../../../../gateway/console/static/lib/outline.js";
import { answer, created, ended, message, records, started, traceOf } from "./records.js";

const outline = (trace, view) =>
  rowsOf(trace, view).map((row) => {
    const line = lineOf(trace, row, view);
    return `${" ".repeat(line.depth)}${line.name}${line.status ? ` ${line.status}` : ""}`;
  });

test("a run is a tree of its attempt, tools and messages", () => {
  const trace = traceOf(
    created,
    started(0.5),
    [0.6, "tool_started", { call_id: "t", name: "get_weather", input: { city: "Rome" } }],
    [0.9, "tool_ended", { call_id: "t", name: "get_weather", output: "rain" }],
    ...answer,
    ended(4),
  );
  assert.deepEqual(outline(trace, { fold: true }), [
    "run ok",
    " queued ok",
    " run_created",
    " attempt 1 ok",
    "  get_weather ok",
    "  message ok",
  ]);
  const text = trace.spans.find((span) => span.kind === "message");
  assert.equal(lineOf(trace, ~text.index).note, "3 tokens, 1/s");
  assert.equal(trace.spans.find((span) => span.kind === "queue").end - trace.start, 500);
});

test("each record has one row when everything is expanded and nothing is folded", () => {
  const trace = traceOf(created, started(0), ...answer, [3.5, "custom", { name: "x" }], ended(4));
  const expanded = new Map(trace.spans.map((span) => [span.index, true]));
  const rows = rowsOf(trace, { expanded, fold: false });
  assert.deepEqual(
    rows.filter((row) => row >= 0).sort((one, other) => one - other),
    trace.records.map((_, index) => index),
  );
});

test("successive deltas of one part fold into one row with their text", () => {
  const trace = traceOf(created, started(0), ...answer, ended(4));
  const expanded = new Map(trace.spans.map((span) => [span.index, true]));
  const row = rowsOf(trace, { expanded, fold: true }).find((each) => trace.records[each]?.event_type === "part_delta");
  assert.equal(lineOf(trace, row, { fold: true }).note, "2 tokens: will rain");
});

test("a record that the server folded counts as all of its events", () => {
  const trace = traceOf(created, started(0), ...answer.slice(0, 2), [
    2,
    "part_delta",
    { message_id: "m", index: 0, text: " will rain" },
    { n: 40, to: 47, until: "2027-01-01T00:00:03.000000Z" },
  ]);
  trace.add({ ...records(ended(4))[0], event_id: 48 });
  assert.equal(trace.spans.find((span) => span.kind === "message").tokens, 41);
  assert.equal(trace.indexOf(30), 4);
  assert.equal(trace.indexOf(48), 5);
});

test("deltas of parts that alternate are complete, folded and unfolded", () => {
  const [first, second] = records(
    [1, "part_delta", { message_id: "one", index: 0 }, { n: 3, to: 8, stretches: [1, 3, 2] }],
    [1, "part_delta", { message_id: "two", index: 0 }, { n: 2, to: 6, stretches: [1, 1, 1] }],
  );
  const group = (event_id, ...texts) => ({ event_id, timestamp: first.timestamp, texts });
  const listed = [
    { ...first, deltas: [group(3, "a"), group(7, "c", "e")] },
    { ...second, deltas: [group(4, "b"), group(6, "d")] },
  ];
  const whole = unfold(listed);
  assert.deepEqual(whole.map(({ event_id, payload }) => [event_id, payload.message_id, payload.text]), [
    [3, "one", "a"],
    [4, "two", "b"],
    [6, "two", "d"],
    [7, "one", "c"],
    [8, "one", "e"],
  ]);
  for (const some of [whole, [first, second]]) {
    const log = new RunLog();
    for (const record of some) assert.ok(log.append(record));
    assert.deepEqual([log.events, log.last], [5, 8]);
    assert.ok(!log.append(whole[4]));
    for (const { event_id, payload } of whole)
      assert.equal(log.records[log.indexOf(event_id)].payload.message_id, payload.message_id, `event ${event_id}`);
    assert.deepEqual([log.indexOf(2), log.indexOf(5), log.indexOf(9)], [-1, -1, -1]);
  }
});

test("records that arrive again after a reconnect change nothing", () => {
  const trace = traceOf(created, started(0), ...answer);
  const before = trace.records.length;
  for (const record of records(created, started(0), ...answer)) trace.add(record);
  assert.equal(trace.records.length, before);
});

test("a failed tool stays visible in a folded attempt", () => {
  const trace = traceOf(
    created,
    started(0),
    [1, "tool_started", { call_id: "t", name: "get_weather" }],
    [1, "tool_ended", { call_id: "t", name: "get_weather", fault: { code: "agent_failed", message: "no route" } }],
    ...answer,
    ended(4, "error", { fault: { code: "agent_failed", message: "no answer" } }),
  );
  const attempt = trace.spans.find((span) => span.kind === "attempt");
  const lines = outline(trace, { fold: true, expanded: new Map([[attempt.index, false]]) });
  assert.deepEqual(lines, ["run failed", " queued ok", " run_created", " attempt 1 failed", "  get_weather failed"]);
  const line = lineOf(trace, ~attempt.index, { expanded: new Map([[attempt.index, false]]) });
  assert.equal(line.hidden, "9 events, 1 failed");
});

test("a restart makes void what the earlier attempt sent", () => {
  const trace = traceOf(created, started(0), ...answer, started(5, 2), ended(6));
  assert.deepEqual(
    trace.spans
      .filter((span) => ["attempt", "message"].includes(span.kind))
      .map((span) => `${span.name} ${span.status}`),
    ["attempt 1 cut", "message void", "attempt 2 ok"],
  );
  const resumed = traceOf(created, started(0), ...answer, started(5, 2, { goes_on: true }), ended(6));
  assert.equal(resumed.spans.find((span) => span.kind === "message").status, "ok");
});

test("a question is open until another run of the task answers it", () => {
  const trace = traceOf(
    created,
    started(0),
    [1, "interrupt_raised", { interrupt_id: "q", ask: "approval", message: message("May I?") }],
    ended(1, "paused"),
  );
  const question = trace.spans.find((span) => span.kind === "question");
  assert.equal(question.status, "asks");
  assert.equal(question.end, null);
  trace.answered("q", trace.start + 61_000, "answered through LangGraph");
  assert.equal(question.status, "ok");
  assert.equal(lineOf(trace, ~question.index).note, "May I? – answered through LangGraph");
  assert.equal(trace.gaps.length, 1);
});

test("steps contain what happens on their node", () => {
  const trace = traceOf(
    created,
    started(0),
    [1, "step_started", { step_id: "s", name: "plan", node: "plan", ns: [] }],
    [1, "message_started", { message_id: "m", node: "plan", ns: [] }],
    [2, "message_ended", { message_id: "m" }],
    [2, "step_ended", { step_id: "s", name: "plan", node: "plan", ns: [] }],
    [3, "message_started", { message_id: "n", node: "other", ns: [] }],
    ended(4),
  );
  const parents = trace.spans.filter((span) => span.kind === "message").map((span) => trace.spans[span.parent].kind);
  assert.deepEqual(parents, ["step", "attempt"]);
});

test("a filter keeps the spans above a match, and failures alone can be shown", () => {
  const trace = traceOf(
    created,
    started(0),
    [1, "tool_started", { call_id: "t", name: "search", input: { q: "umbrella" } }],
    [1, "tool_ended", { call_id: "t", name: "search", fault: { code: "x", message: "down" } }],
    ...answer,
    ended(4),
  );
  assert.deepEqual(outline(trace, { filter: "umbrella" }), [
    "run ok",
    " attempt 1 ok",
    "  search failed",
    "   tool_started",
  ]);
  assert.deepEqual(outline(trace, { filter: "will rain", fold: true }), [
    "run ok",
    " attempt 1 ok",
    "  message ok",
    "   part_delta",
  ]);
  assert.deepEqual(outline(trace, { failures: true }), ["run ok", " attempt 1 ok", "  search failed"]);
  assert.deepEqual(outline(trace, { filter: "nothing like it" }), []);
});

test("an event in a folded span is revealed by expanding what is above it", () => {
  const trace = traceOf(created, started(0), ...answer, ended(4));
  const index = trace.indexOf(7);
  assert.equal(positionOf(trace, rowsOf(trace, { fold: true }), index), 4);
  const rows = rowsOf(trace, { fold: false, expanded: revealing(trace, index) });
  assert.equal(rows[positionOf(trace, rows, index)], index);
});

test("idle times take a small share of the axis", () => {
  const trace = traceOf(created, started(0), [2, "custom", {}], [182, "custom", {}], ended(184));
  const axis = new Axis(trace.start, trace.end, trace.gaps);
  assert.equal(axis.gaps.length, 1);
  assert.ok(Math.abs(axis.place(trace.start + 2000) - 0.475) < 0.001);
  assert.ok(Math.abs(axis.place(trace.start + 182_000) - 0.525) < 0.001);
  assert.equal(axis.place(trace.end), 1);
  assert.deepEqual(
    axis.ticks(4).map((tick) => tick.offset / 1000),
    [0, 1, 2, 183, 184],
  );
});

test("an axis of nothing but one moment has a place for it", () => {
  assert.equal(new Axis(5, 5).place(5), 0);
  assert.deepEqual(new Axis(5, 5).ticks(4), []);
});

test("ticks of a plot are round and cover the values", () => {
  assert.deepEqual(niceTicks(0, 0.87, 4), [0, 0.5]);
  assert.deepEqual(niceTicks(0, 100, 5), [0, 20, 40, 60, 80, 100]);
});
