import assert from "node:assert/strict";
import { test } from "node:test";

import { Shortcuts } from "../../../../gateway/console/static/lib/keys.js";
import { closedLength, decodeEntities, safeHref } from "../../../../gateway/console/static/lib/markdown.js";
import { link, parseRoute } from "../../../../gateway/console/static/lib/route.js";
import { createStore } from "../../../../gateway/console/static/lib/store.js";
import { count, formatBytes, formatClock, formatDuration, formatExact, formatRelative, parseTime, secondsBetween } from "../../../../gateway/console/static/lib/time.js";

test("durations, sizes and numbers have units", () => {
  const durations = [[null, "–"], [0, "0 ms"], [0.0004, "<1 ms"], [0.34, "340 ms"], [0.9999, "1.0 s"], [1.234, "1.23 s"], [4.21, "4.2 s"], [12.4, "12 s"], [59.9, "1 min"], [185, "3 min 5 s"], [3725, "1 h 2 min"], [90_000, "1 d 1 h"], [-2, "−2.0 s"]];
  for (const [seconds, text] of durations) assert.equal(formatDuration(seconds), text);
  const sizes = [[null, "–"], [0, "0 bytes"], [1, "1 byte"], [312, "312 bytes"], [20_000, "20 KB"], [999_999, "1 MB"], [1_400_000, "1.4 MB"], [5e15, "5000 TB"]];
  for (const [bytes, text] of sizes) assert.equal(formatBytes(bytes), text);
  assert.deepEqual([count(1, "run"), count(50_000, "run"), count(2, "loss", "losses")], ["1 run", "50,000 runs", "2 losses"]);
});

test("times keep their microseconds", () => {
  assert.equal(parseTime("2026-11-27T12:00:00.250500Z"), Date.UTC(2026, 10, 27, 12) + 250.5);
  assert.equal(secondsBetween("2026-11-27T12:00:00Z", "2026-11-27T12:00:00.000250Z").toFixed(6), "0.000250");
  assert.deepEqual([parseTime(null), parseTime("yesterday"), secondsBetween(null, "2026-11-27T12:00:00Z")], [null, null, null]);
});

test("relative times are short, and exact times are local", () => {
  const now = Date.UTC(2026, 10, 27, 12);
  const at = (seconds) => new Date(now - seconds * 1000).toISOString();
  for (const [seconds, text] of [[0, "now"], [12, "12 s ago"], [200, "3 min ago"], [7200, "2 h ago"], [200_000, "2 d ago"], [-90, "in 1 min"]]) {
    assert.equal(formatRelative(at(seconds), now), text);
  }
  assert.match(formatExact(at(0)), /^2026-11-2[678] \d\d:00:00\.000$/);
  assert.deepEqual([formatClock(null), formatRelative("x", now)], ["–", "–"]);
});

test("a link leads to its own route", () => {
  assert.deepEqual(parseRoute(link(["agents", "a/b ü?", "try"], { text: "x&y=z", thread: null, from: "" })), {
    page: "try",
    path: "agents/a%2Fb%20%C3%BC%3F/try",
    params: { agent: "a/b ü?" },
    query: { text: "x&y=z" },
  });
  for (const [hash, page] of [["", "agents"], ["#", "agents"], ["#/agents/", "agents"], ["#/nothing", null], ["#/agents/%2", null], ["#/agents//try", null], ["#/runs/1/2", null]]) {
    assert.equal(parseRoute(hash).page, page, hash);
  }
});

test("shortcuts are single keys and sequences, and none in a text field", () => {
  const shortcuts = new Shortcuts();
  const pressed = [];
  const press = (key, more = {}) => shortcuts.find({ key, ...more })?.();
  shortcuts.add({ "g a": () => pressed.push("agents"), "?": () => pressed.push("help"), j: () => pressed.push("next") });
  press("g", { at: 0 });
  press("a", { at: 100 });
  press("g", { at: 200 });
  press("a", { at: 9000 });
  press("?");
  press("j", { isEditable: true });
  press("j", { altKey: true });
  assert.deepEqual(pressed.splice(0), ["agents", "help"]);
  const remove = shortcuts.add({ j: () => pressed.push("row"), "ctrl+enter": () => pressed.push("send") });
  press("j");
  remove();
  press("j");
  shortcuts.isEnabled = false;
  press("j");
  press("Enter", { ctrlKey: true });
  assert.deepEqual(pressed, ["row", "next"]);
});

test("a store notifies its listeners once per frame", () => {
  const frames = [];
  const store = createStore(1, (callback) => frames.push(callback));
  let calls = 0;
  const remove = store.subscribe(() => calls++);
  store.set(2);
  store.set((value) => value + 1);
  store.set(3);
  assert.deepEqual([store.value, store.version, frames.length, calls], [3, 2, 1, 0]);
  frames.pop()();
  remove();
  store.touch();
  frames.pop()();
  assert.equal(calls, 1);
});

test("only web and mail links can be followed", () => {
  const followed = ["http://example.com/", "https://example.com/a?b", "mailto:ann@example.com"];
  const refused = ["javascript:alert(1)", "JAVASCRIPT:alert(1)", "data:text/html,x", "blob:http://x/1", "file:///etc/passwd", "vbscript:x", "/v1/runs", "#/key", "//example.com", ""];
  for (const href of followed) assert.equal(safeHref(href), href);
  for (const href of refused) assert.equal(safeHref(href), null, href);
});

test("a growing text is split after complete blocks", () => {
  for (const [text, closed] of [
    ["one\n\ntwo", "one\n\n"],
    ["one\ntwo", ""],
    ["```\na\n\nb", ""],
    ["```\na\n\nb\n```\n\nc", "```\na\n\nb\n```\n\n"],
    ["~~~\n```\n\n", ""],
    ["- a\n\n- b\n\nend", ""],
    ["- a\n\ntext\n\nend", "- a\n\ntext\n\n"],
  ]) {
    assert.equal(text.slice(0, closedLength(text)), closed, JSON.stringify(text));
  }
});

test("entities become characters", () => {
  assert.equal(decodeEntities("&lt;b&gt; &amp; &#65;&#x42; &unknown; &#0; &#xD800;"), "<b> & AB &unknown; &#0; &#xD800;");
});
