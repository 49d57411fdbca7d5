// Requests as commands, declared losses, and the search for an event.

import assert from "node:assert/strict";
import { test } from "node:test";

import { curl, parseCurl } from "../../../../gateway/console/static/lib/curl.js";
import { cluesOf, explain, findClues } from "../../../../gateway/console/static/lib/find.js";
import { joinLosses, parseLosses } from "../../../../gateway/console/static/lib/losses.js";

test("a request becomes a command that a shell reads as it is", () => {
  const command = curl({
    method: "POST",
    url: "http://localhost:8000/a2a/it's",
    headers: [["Content-Type", "application/json"], ["Content-Length", "12"]],
    body: '{"a": "$HOME"}',
    keyed: true,
  });
  assert.equal(
    command,
    [
      `curl 'http://localhost:8000/a2a/it'\\''s'`,
      `-H "Authorization: Bearer $BABELGATE_KEY"`,
      `-H 'Content-Type: application/json'`,
      `--data-raw '{"a": "$HOME"}'`,
    ].join(" \\\n  "),
  );
  assert.equal(curl({ method: "GET", url: "http://x/y" }), "curl http://x/y");
  assert.equal(curl({ method: "DELETE", url: "http://x/y" }), "curl -X DELETE http://x/y");
});

test("the losses of a header are a dictionary of strings", () => {
  assert.deepEqual(parseLosses('tool-activity="no form, \\"none\\"", usage="dropped", others'), [
    { feature: "tool-activity", how: 'no form, "none"' },
    { feature: "usage", how: "dropped" },
    { feature: "others", how: "" },
  ]);
  assert.deepEqual(parseLosses(null), []);
  assert.deepEqual(parseLosses('usage="unterminated'), []);
  assert.deepEqual(joinLosses([{ feature: "a", how: "1" }], [{ feature: "a", how: "2" }, { feature: "b", how: "3" }]), [
    { feature: "a", how: "1" },
    { feature: "b", how: "3" },
  ]);
});

const tool = { event_type: "tool_ended", payload: { call_id: "call-1", name: "get_weather", output: "rain" } };

test("an event is found by its id before its name", () => {
  const found = findClues({ items: [{ id: "call-1" }, { tool: "get_weather" }] }, cluesOf(tool));
  assert.deepEqual(found, { clue: { text: "call-1", what: "call_id" }, paths: ["$.items[0].id"] });
  assert.deepEqual(findClues({ tool: "get_weather" }, cluesOf(tool)).paths, ["$.tool"]);
  assert.equal(findClues({ text: "other" }, cluesOf(tool)), null);
});

test("an event that is not shown is explained by the declared losses", () => {
  const losses = [{ feature: "usage", how: "dropped" }, { feature: "tool-activity", how: "no form" }];
  assert.deepEqual(explain(tool, losses), [losses[1]]);
  assert.deepEqual(explain({ event_type: "part_delta", payload: { text: "x" } }, losses), []);
});

test("a command of the gateway's page becomes a request", () => {
  const command = `curl -s http://h/a2a/echo -H 'A2A-Version: 1.0' -d '{"text": "it'\\''s"}'`;
  assert.deepEqual(parseCurl(command), {
    method: "POST",
    url: "http://h/a2a/echo",
    headers: { "A2A-Version": "1.0" },
    body: '{"text": "it\'s"}',
  });
  const request = { method: "PUT", url: "http://h/x?y=1", headers: [["A", "b c"]], body: "it's" };
  assert.deepEqual(parseCurl(curl(request)), { ...request, headers: { A: "b c" } });
  assert.equal(parseCurl("wget http://h"), null);
});

test("a text that a protocol shows in pieces is found by its ends", () => {
  const events = [" will", " rain", " today", "."].map((content) => ({ type: "part", part: { content } }));
  const clues = cluesOf({ event_type: "part_delta", payload: { text: " will rain today" } });
  assert.deepEqual(findClues({ role: "will", events }, clues).paths, ["$.events[0].part.content", "$.events[2].part.content"]);
  assert.equal(findClues({ events: events.slice(1) }, clues), null);
});
