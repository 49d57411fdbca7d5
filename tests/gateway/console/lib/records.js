// Records of runs for tests.

import { Trace } from "../../../../gateway/console/static/lib/spans.js";

/** Return the records of facts `[seconds, type, payload, members]`, numbered from 3. */
export function records(...facts) {
  return facts.map(([seconds, event_type, payload = {}, members = {}], index) => ({
    event_id: index + 3,
    event_type,
    attempt: 1,
    timestamp: new Date(Date.UTC(2027, 0, 1) + seconds * 1000).toISOString().replace("Z", "500Z"),
    payload,
    ...members,
  }));
}

export function traceOf(...facts) {
  const trace = new Trace();
  for (const record of records(...facts)) trace.add(record);
  return trace;
}

export const message = (text) => ({ parts: [{ kind: "text", text }] });
export const created = [0, "run_created", { messages: [message("Rain?")], cause: "input" }];
export const started = (seconds, attempt = 1, more = {}) => [seconds, "run_started", { attempt, ...more }];
export const ended = (seconds, status = "success", more = {}) => [seconds, "run_ended", { status, ...more }];
export const answer = [
  [1, "message_started", { message_id: "m", phase: "answer" }],
  [1, "part_added", { message_id: "m", index: 0, part: { kind: "text", text: "It" }, open: true }],
  [2, "part_delta", { message_id: "m", index: 0, text: " will" }],
  [3, "part_delta", { message_id: "m", index: 0, text: " rain" }],
  [3, "part_ended", { message_id: "m", index: 0 }],
  [3, "message_ended", { message_id: "m" }],
];
