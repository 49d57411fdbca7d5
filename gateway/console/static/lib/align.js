/**
 * Two runs, aligned by the kinds of their events. No DOM.
 *
 * The alignment is the shortest edit script of Myers (1986), "An O(ND) Difference Algorithm".
 *
 * @import {Trace} from './spans.js'
 * @typedef {{key: string, kind: string, name: string, offset: number, seconds: number|null, status: string, text: string,
 *   event: number}} Mark  `offset` and `seconds` count from the start of the run.
 * @typedef {{key: string, kind: string, name: string, a: Mark|null, b: Mark|null, same: boolean}} Pair
 */
import { recordNote, textOf } from "./outline.js";

/** Most marks of one run that are aligned, and most differences that are searched for. Chosen: the table stays readable. */
const MAX_MARKS = 2000;
const MAX_EDITS = 600;
const POINTS = new Set(["loss_noted", "interrupt_answered", "state_saved", "custom", "native"]);

/** Return the things of a run that can be compared, in order of their first event. @param {Trace} trace @returns {Mark[]} */
export function marksOf(trace) {
  const marks = [];
  for (const span of trace.spans) {
    if (span.kind === "run") continue;
    marks.push({
      key: `${span.kind} ${span.kind === "message" ? (span.data?.phase ?? "") : span.name}`,
      kind: span.kind,
      name: span.name,
      offset: (span.start - trace.start) / 1000,
      seconds: span.end === null ? null : (span.end - span.start) / 1000,
      status: span.status,
      text: spanText(trace, span),
      event: trace.records[span.items.find((item) => item >= 0) ?? 0].event_id,
    });
  }
  trace.records.forEach((record, index) => {
    if (!POINTS.has(record.event_type)) return;
    const { payload } = record;
    marks.push({
      key: `${record.event_type} ${payload.feature ?? payload.name ?? ""}`,
      kind: record.event_type,
      name: payload.feature ?? payload.name ?? record.event_type,
      offset: (trace.times[index] - trace.start) / 1000,
      seconds: null,
      status: "",
      text: recordNote(record),
      event: record.event_id,
    });
  });
  return marks.sort((one, other) => one.event - other.event).slice(0, MAX_MARKS);
}

function spanText(trace, span) {
  switch (span.kind) {
    case "message":
      return messageText(trace, span);
    case "tool":
    case "step":
      return span.fault ? `${span.fault.code}: ${span.fault.message}` : JSON.stringify(span.data?.input ?? null);
    case "question":
      return textOf(span.data?.message);
    case "attempt":
      return span.fault ? `${span.fault.code}: ${span.fault.message}` : "";
    default:
      return "";
  }
}

/** Return the text of a message: its text parts and their deltas. @param {Trace} trace */
export function messageText(trace, span) {
  const texts = [];
  for (const item of span.items) {
    if (item < 0) continue;
    const { payload } = trace.records[item];
    texts.push(payload.text ?? payload.part?.text ?? "");
  }
  return texts.join("");
}

/** Return the text that a run answered: all messages of the agent that no restart made void. @param {Trace} trace */
export function answerOf(trace) {
  const messages = trace.spans.filter(
    (span) => span.kind === "message" && span.status !== "void" && span.data?.phase !== "progress",
  );
  return messages.map((span) => messageText(trace, span)).join("\n");
}

/** Return the marks of two runs, aligned. @param {Mark[]} a @param {Mark[]} b @returns {Pair[]} */
export function align(a, b) {
  return edits(a, b, (one, other) => one.key === other.key).map(([one, other]) => {
    const left = one === null ? null : a[one];
    const right = other === null ? null : b[other];
    const { key, kind, name } = /** @type {Mark} */ (left ?? right);
    return {
      key,
      kind,
      name,
      a: left,
      b: right,
      same: Boolean(left && right && left.text === right.text && left.status === right.status),
    };
  });
}

/** Return the words of two texts as runs of `{text, side}`; side is 'both', 'a' or 'b'. */
export function wordDifference(a, b) {
  const words = (text) => text.match(/\s+|[^\s]+/g) ?? [];
  const left = words(a);
  const right = words(b);
  const pieces = [];
  for (const [one, other] of edits(left, right, Object.is)) {
    const side = one === null ? "b" : other === null ? "a" : "both";
    const text = one === null ? right[other] : left[one];
    const last = pieces[pieces.length - 1];
    if (last?.side === side) last.text += text;
    else pieces.push({ text, side });
  }
  return pieces;
}

/**
 * Return index pairs of two lists; one index is null where the other list has an item of its own.
 *
 * Lists with more than MAX_EDITS differences are paired up to the first difference from each end, and the rest is unpaired.
 * @returns {[number|null, number|null][]}
 */
export function edits(a, b, isSame) {
  let start = 0;
  while (start < a.length && start < b.length && isSame(a[start], b[start])) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && isSame(a[a.length - 1 - end], b[b.length - 1 - end]))
    end += 1;
  const middle = shortest(a.slice(start, a.length - end), b.slice(start, b.length - end), isSame);
  const pairs = Array.from({ length: start }, (_, i) => [i, i]);
  for (const [one, other] of middle)
    pairs.push([one === null ? null : one + start, other === null ? null : other + start]);
  for (let i = end; i > 0; i -= 1) pairs.push([a.length - i, b.length - i]);
  return /** @type {[number|null, number|null][]} */ (pairs);
}

function shortest(a, b, isSame) {
  const limit = Math.min(a.length + b.length, MAX_EDITS);
  const furthest = new Map([[1, 0]]);
  const history = [];
  for (let edit = 0; edit <= limit; edit += 1) {
    history.push(new Map(furthest));
    for (let k = -edit; k <= edit; k += 2) {
      const down = k === -edit || (k !== edit && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
      let x = down ? (furthest.get(k + 1) ?? 0) : (furthest.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && isSame(a[x], b[y])) {
        x += 1;
        y += 1;
      }
      furthest.set(k, x);
      if (x >= a.length && y >= b.length) return backtrack(history, a.length, b.length);
    }
  }
  return [...a.map((_, i) => [i, null]), ...b.map((_, i) => [null, i])];
}

function backtrack(history, x, y) {
  const pairs = [];
  for (let edit = history.length - 1; edit >= 0; edit -= 1) {
    const furthest = history[edit];
    const k = x - y;
    const down = k === -edit || (k !== edit && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
    const before = down ? k + 1 : k - 1;
    const fromX = edit === 0 ? 0 : (furthest.get(before) ?? 0);
    const fromY = edit === 0 ? 0 : fromX - before;
    while (x > fromX && y > fromY) {
      x -= 1;
      y -= 1;
      pairs.push([x, y]);
    }
    if (edit === 0) break;
    if (down) {
      y -= 1;
      pairs.push([null, y]);
    } else {
      x -= 1;
      pairs.push([x, null]);
    }
  }
  return pairs.reverse();
}
