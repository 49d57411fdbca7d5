import assert from "node:assert/strict";
import { test } from "node:test";

import { configure, gatewayUrl, openStream } from "../../../../gateway/console/static/lib/api.js";
import { FrameParser, StreamOwner } from "../../../../gateway/console/static/lib/stream.js";
import { defer, serve } from "./server.js";

const FAST = { silence: 20_000, backoff: { first: 1, longest: 5 }, hidden: 1 };

/** @param {number} number */
const frame = (number) => `event: part_delta\nid: ${number}\ndata: {"event_id":${number}}\n\n`;

test("frames are the same at every cut of the text", () => {
  const text = `: heartbeat\n\n${frame(1)}event: x\r\ndata: a\r\ndata: b\r\n\r\ndata:{}\n\n`;
  const whole = new FrameParser().push(text);
  assert.deepEqual(whole, [
    { id: "1", event: "part_delta", data: '{"event_id":1}' },
    { id: null, event: "x", data: "a\nb" },
    { id: null, event: "message", data: "{}" },
  ]);
  for (let cut = 0; cut <= text.length; cut++) {
    const parser = new FrameParser();
    assert.deepEqual([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))], whole, `cut at ${cut}`);
  }
});

test("an incomplete frame is not a frame", () => {
  assert.deepEqual(new FrameParser().push("id: 1\ndata: {}\n"), []);
});

test("a stream that is cut within frames resumes without a gap or a duplicate", async (t) => {
  const last = 60;
  let connections = 0;
  const base = await serve(t, (request, response) => {
    connections += 1;
    const after = Number(request.headers["last-event-id"] ?? 0);
    // The server repeats one event, and each connection ends within the seventh.
    const numbers = Array.from({ length: last - after + 1 }, (_, index) => after + index).filter((number) => number > 0);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const text = numbers.map(frame).join("");
    if (numbers.length <= 8) response.end(text);
    else response.write(text.slice(0, frame(10).length * 7 - 9), () => response.destroy());
  });
  configure({ base: new URL("console/", base).href, key: null });
  /** @type {number[]} */
  const received = [];
  const states = new Set();
  const ended = defer();
  const owner = new StreamOwner(FAST);
  const claim = owner.claim({
    open: (cursor, signal) => openStream(gatewayUrl("/events"), cursor, signal),
    onFrames: (frames) => received.push(...frames.map(({ data }) => JSON.parse(data).event_id)),
    isLast: ({ id }) => id === String(last),
    onState: (state) => {
      states.add(state);
      if (state === "ended") ended.resolve();
    },
  });
  await ended.promise;
  claim.release();
  assert.deepEqual(received, Array.from({ length: last }, (_, index) => index + 1));
  assert.ok(connections > 5, `${connections} connections`);
  assert.deepEqual([...states], ["connecting", "live", "reconnecting", "ended"]);
});

/**
 * A stream that stays open, and what the owner does with it.
 *
 * @param {string[]} log
 */
const endless = (log) => (/** @type {string} */ name, priority = 0) => ({
  priority,
  open: async (_cursor, signal) => {
    signal.addEventListener("abort", () => log.push(`${name} closes`));
    log.push(`${name} opens`);
    const body = new ReadableStream({ start: (controller) => signal.addEventListener("abort", () => controller.error(new Error("aborted"))) });
    return new Response(body);
  },
  onFrames: () => {},
  onState: (state) => log.push(`${name} ${state}`),
});

const settled = () => new Promise((resolve) => setImmediate(resolve));

test("only the stream with the highest priority is open", async () => {
  const log = [];
  const make = endless(log);
  const owner = new StreamOwner(FAST);
  const changes = owner.claim(make("changes"));
  await settled();
  const run = owner.claim(make("run", 1));
  await settled();
  assert.deepEqual(log.splice(0), ["changes connecting", "changes opens", "changes live", "changes closes", "changes paused", "run connecting", "run opens", "run live"]);
  run.release();
  await settled();
  assert.deepEqual(log.splice(0), ["run closes", "changes reconnecting", "changes opens", "changes live"]);
  changes.release();
  assert.deepEqual(log, ["changes closes"]);
});

test("a hidden tab closes its stream, and opens it again when it is visible", async () => {
  const log = [];
  const paused = defer();
  const owner = new StreamOwner(FAST);
  const wanted = endless(log)("run");
  const claim = owner.claim({ ...wanted, onState: (state) => (wanted.onState(state), state === "paused" && paused.resolve()) });
  await settled();
  owner.setVisible(false);
  await paused.promise;
  assert.ok(log.includes("run closes"));
  log.length = 0;
  owner.setVisible(true);
  await settled();
  assert.deepEqual(log, ["run reconnecting", "run opens", "run live"]);
  claim.release();
});

test("tabs share four streams, and the tab in use has one", async () => {
  const log = [];
  const make = endless(log);
  /** Channels of tabs, each of which hears all others. @type {any[]} */
  const channels = [];
  const addTab = (/** @type {string} */ name) => {
    const channel = { onmessage: null, close() {}, postMessage: (data) => channels.filter((each) => each !== channel).forEach((each) => each.onmessage({ data })) };
    channels.push(channel);
    const owner = new StreamOwner(FAST, channel);
    owner.claim(make(name));
    return owner;
  };
  const open = () => log.filter((line) => line.endsWith("opens")).length - log.filter((line) => line.endsWith("closes")).length;
  const owners = ["a", "b", "c", "d", "e", "f"].map(addTab);
  assert.equal(open(), 4);
  owners[0].wake();
  owners[0].wake();
  assert.equal(log.filter((line) => line === "a opens").length, 2);
  assert.equal(open(), 4);
  owners[5].close();
  assert.equal(open(), 3);
  for (const owner of owners) owner.close();
  assert.equal(open(), 0);
});

test("a silent connection is opened again", async () => {
  const log = [];
  const again = defer();
  const owner = new StreamOwner({ ...FAST, silence: 5 });
  let opened = 0;
  const wanted = endless(log)("run");
  const claim = owner.claim({ ...wanted, open: (cursor, signal) => (++opened === 2 && again.resolve(), wanted.open(cursor, signal)) });
  await again.promise;
  claim.release();
});

test("a refusal ends the stream until it is retried", async (t) => {
  let status = 403;
  const base = await serve(t, (_request, response) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify({ error: { code: "forbidden", message: "no" } }));
  });
  configure({ base: new URL("console/", base).href });
  const states = [];
  let problem;
  let next = defer();
  const claim = new StreamOwner(FAST).claim({
    open: (cursor, signal) => openStream(gatewayUrl("/events"), cursor, signal),
    onFrames: () => {},
    onState: (state, error) => {
      states.push(state);
      problem = error ?? problem;
      if (state === "error" || state === "live") next.resolve();
    },
  });
  await next.promise;
  assert.deepEqual([states.at(-1), problem.code], ["error", "forbidden"]);
  next = defer();
  status = 200;
  claim.retry();
  await next.promise;
  claim.release();
  assert.equal(states.at(-1), "live");
});
