import assert from "node:assert/strict";
import { test } from "node:test";

import { Conversation, textOf } from "../../../../gateway/console/static/lib/conversation.js";
import { orderRevisions, shortId } from "../../../../gateway/console/static/lib/revisions.js";

/** Records of one run, from pairs of event and payload. @param {[string, any][]} events */
const recordsOf = (events, runId = "r1", first = 1) =>
  events.map(([event_type, payload], index) => ({ event_id: first + index, run_id: runId, event_type, attempt: 1, timestamp: `2026-11-27T12:00:0${index}Z`, payload }));

const STARTED = [
  ["run_created", { messages: [{ role: "user", parts: [{ kind: "text", text: "Hi" }] }], data: null, cause: "input" }],
  ["run_started", { attempt: 1, goes_on: false, void: null }],
];
const MESSAGE = [
  ["message_started", { message_id: "m1", role: "agent", name: null, phase: "answer" }],
  ["part_added", { message_id: "m1", index: 0, part: { kind: "text", text: "Hel" }, open: true }],
  ["part_delta", { message_id: "m1", index: 0, text: "lo" }],
];

test("tokens become the text of a message", () => {
  const conversation = new Conversation();
  for (const record of recordsOf([...STARTED, ...MESSAGE])) conversation.add([record]);
  const [turn] = conversation.turns;
  assert.deepEqual([turn.status, turn.inputs.length, turn.count, turn.last], ["running", 1, 5, 5]);
  const [message] = turn.items;
  assert.deepEqual([textOf(message.of.parts), message.of.parts[0].isOpen], ["Hello", true]);
  assert.equal(turn.firstOutputAt, "2026-11-27T12:00:03Z");
  conversation.add(recordsOf([["run_ended", { status: "success", fault: null, output: { a: 1 }, usage: {} }]], "r1", 6));
  assert.deepEqual([turn.status, turn.output, message.of.parts[0].isOpen], ["success", { a: 1 }, false]);
});

test("folded records count all of their events", () => {
  const conversation = new Conversation();
  const [delta] = recordsOf([["part_delta", { message_id: "m1", index: 0, text: "lo, world" }]], "r1", 5);
  conversation.add([...recordsOf([...STARTED, ...MESSAGE.slice(0, 2)]), { ...delta, n: 40, to: 44 }]);
  const [turn] = conversation.turns;
  assert.deepEqual([turn.count, turn.last, textOf(turn.items[0].of.parts)], [44, 44, "Hello, world"]);
});

test("an answer in a later run closes the question", () => {
  const conversation = new Conversation();
  const question = (id) => ["interrupt_raised", { interrupt_id: id, ask: "approval", message: { parts: [] }, value: null, answer_schema: null }];
  conversation.add(recordsOf([...STARTED, question("i1"), question("i2"), ["run_ended", { status: "paused", fault: null, output: null, usage: {} }]]));
  assert.deepEqual(conversation.openQuestions.map(({ item }) => item.id), ["i1", "i2"]);
  conversation.add(recordsOf([["run_created", { messages: [], data: null, cause: "answer" }], ["interrupt_answered", { interrupt_id: "i1", action: "answer", value: 7 }]], "r2", 10));
  assert.deepEqual(conversation.openQuestions.map(({ item }) => item.id), ["i2"]);
  assert.equal(conversation.turns[0].items[0].of.answer.value, 7);
  conversation.closeQuestions("r1");
  assert.deepEqual(conversation.openQuestions, []);
});

/** Members of a second start, and the ids of the items that stay. */
const RESTARTS = [
  [{ attempt: 2, goes_on: false, void: null }, []],
  [{ attempt: 2, goes_on: true, void: null }, ["m1", "t1"]],
  [{ attempt: 2, goes_on: false, void: ["m1"] }, ["t1"]],
];

test("a restart makes earlier output void", () => {
  for (const [start, expected] of RESTARTS) {
    const conversation = new Conversation();
    conversation.add(recordsOf([...STARTED, ...MESSAGE, ["tool_started", { call_id: "t1", name: "f", input: {} }], ["run_started", start]]));
    assert.deepEqual(conversation.turns[0].items.map(({ id }) => id), expected);
  }
});

test("tools, steps, files and losses are items with their ends", () => {
  const conversation = new Conversation();
  conversation.add(
    recordsOf([
      ["tool_started", { call_id: "t", name: "add", input: [1] }],
      ["tool_ended", { call_id: "t", name: "add", output: 2, fault: null }],
      ["step_started", { step_id: "s", name: "plan", input: null }],
      ["step_ended", { step_id: "s", name: "plan", update: null, fault: { code: "x", message: "no" } }],
      ["artifact_added", { artifact_id: "a", name: "f.txt", part: { kind: "text", text: "1" }, append: false, last: false }],
      ["artifact_added", { artifact_id: "a", name: "f.txt", part: { kind: "text", text: "2" }, append: true, last: true }],
      ["loss_noted", { feature: "citation", how: "dropped" }],
      ["an_event_of_a_later_release", {}],
    ]),
  );
  const { items, count } = conversation.turns[0];
  assert.deepEqual(items.map(({ type }) => type), ["tool", "step", "file", "loss"]);
  assert.deepEqual([items[0].of.output, items[1].of.fault.message, items[2].of.parts.length, count], [2, "no", 2, 8]);
});

test("the list of records is bounded", () => {
  const conversation = new Conversation();
  const many = Array.from({ length: 20_000 }, () => ["custom_unknown", {}]);
  conversation.add(recordsOf(many));
  assert.ok(conversation.records.length <= 6000);
  assert.equal(conversation.turns[0].count, 20_000);
});

test("revisions are ordered as a tree", () => {
  const items = [["d", "b"], ["c", "b"], ["b", "a"], ["a", null], ["x", "pruned"]].map(([checkpoint_id, parent]) => ({ checkpoint_id, parent }));
  const ordered = orderRevisions(items).map(({ revision, depth }) => `${revision.checkpoint_id}${depth}`);
  assert.deepEqual(ordered, ["a0", "b0", "d1", "c0", "x0"]);
  assert.deepEqual([shortId("short"), shortId("01a226fe-c81f-743c-8315-73f163f746f8")], ["short", "…63f746f8"]);
});
