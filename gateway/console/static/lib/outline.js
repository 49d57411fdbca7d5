/**
 * Rows of the tree of a run: which spans and records are visible, and the words of each. No DOM.
 *
 * A row is one number, so that 50,000 rows take 0.2 MB: the index of a record, or `~index` of a span.
 *
 * @import {Trace, Span} from './spans.js'
 * @typedef {{expanded?: Map<number, boolean>, fold?: boolean, filter?: string, failures?: boolean}} View
 * @typedef {{row: number, kind: string, name: string, note: string, status: string, start: number, end: number|null,
 *   depth: number, expandable: boolean, expanded: boolean, hidden: string, event: number}} Line
 */
import { count, parseTime } from "./time.js";

const OPEN_KINDS = new Set(["run", "attempt", "step"]);
/** Records whose facts the row of their span shows. */
const EDGES = new Set([
  "run_created",
  "run_started",
  "run_ended",
  "message_started",
  "message_ended",
  "tool_started",
  "tool_ended",
  "step_started",
  "step_ended",
  "interrupt_raised",
  "part_ended",
]);
const NOTE_LENGTH = 160;

/** Return the visible rows. A failed span is always visible, whatever is folded. @param {Trace} trace @param {View} view */
export function rowsOf(trace, view = {}) {
  /** @type {number[]} */
  const rows = [];
  if (!trace.spans.length) return rows;
  const words = view.filter?.trim().toLowerCase() ?? "";
  if (words || view.failures) narrow(trace, trace.run, { ...view, words }, rows);
  else walk(trace, trace.run, view, rows, true);
  return rows;
}

/** Return true if the children of a span are shown. @param {Span} span @param {View} view */
export function isExpanded(span, view) {
  return view.expanded?.get(span.index) ?? (OPEN_KINDS.has(span.kind) || span.failures > 0);
}

function walk(trace, span, view, rows, visible) {
  if (visible || span.status === "failed") rows.push(~span.index);
  const expanded = visible && isExpanded(span, view);
  if (!expanded && !span.failures) return;
  for (const item of span.items) {
    if (item < 0) walk(trace, trace.spans[~item], view, rows, expanded);
    else if (expanded && isShown(trace, span, item, view)) rows.push(item);
  }
}

function isShown(trace, span, index, view) {
  const type = trace.records[index].event_type;
  if (type === "part_delta") return !view.fold || trace.groups.has(index);
  if (!view.fold) return true;
  // With folding, the input, the answers and the structured output still have rows of their own.
  return (
    !EDGES.has(type) ||
    type === "run_created" ||
    (type === "run_ended" && span.index === 0 && trace.records[index].payload.output != null)
  );
}

/** Add the rows that match, below the spans that contain them. @returns {boolean} true if anything matched */
function narrow(trace, span, view, rows) {
  const mark = rows.length;
  rows.push(~span.index);
  const own = (!view.failures || span.status === "failed") && (!view.words || nameMatches(trace, span, view.words));
  let matched = own;
  for (const item of span.items) {
    if (item < 0) matched = narrow(trace, trace.spans[~item], view, rows) || matched;
    else if (recordMatches(trace, span, item, view)) {
      matched = true;
      rows.push(item);
    }
  }
  if (!matched) rows.length = mark;
  return matched;
}

function nameMatches(trace, span, words) {
  return `${span.kind} ${span.name} ${span.fault?.message ?? ""}`.toLowerCase().includes(words);
}

function recordMatches(trace, span, index, view) {
  const { event_type: type, payload } = trace.records[index];
  if (view.failures) return false;
  if (!isShown(trace, span, index, view)) return false;
  if (type === "part_delta")
    return (view.fold ? trace.groupText(index) : payload.text).toLowerCase().includes(view.words);
  return `${type} ${JSON.stringify(payload)}`.toLowerCase().includes(view.words);
}

/** Return what a row shows. @param {Trace} trace @param {number} row @param {View} view @returns {Line} */
export function lineOf(trace, row, view = {}) {
  return row < 0 ? spanLine(trace, trace.spans[~row], view) : recordLine(trace, row, view);
}

function spanLine(trace, span, view) {
  const expandable = span.items.length > 1 || span.records > 1;
  const expanded = expandable && isExpanded(span, view);
  const inside = span.items.filter((item) => item < 0).length;
  const hidden =
    expandable && !expanded && (inside || span.records > 4 || span.failures || span.losses) ? foldText(span) : "";
  return {
    row: ~span.index,
    kind: span.kind,
    name: nameOf(span),
    note: spanNote(span),
    status: span.status,
    start: span.start,
    end: span.end,
    depth: span.depth,
    expandable,
    expanded,
    hidden,
    event: firstEvent(trace, span),
  };
}

/** Return how much a folded span hides, and the worst of it. */
function foldText({ records, failures, losses }) {
  const worst = [failures && `${failures} failed`, losses && count(losses, "loss", "losses")].filter(Boolean);
  return [count(records, "event"), ...worst].join(", ");
}

function nameOf(span) {
  if (span.kind === "message") return span.data?.phase === "progress" ? "progress message" : span.name;
  if (span.kind === "question") return `question: ${span.name}`;
  return span.name;
}

function spanNote(span) {
  if (span.fault) return short(`${span.fault.code}: ${span.fault.message}`);
  switch (span.kind) {
    case "message": {
      const seconds = (span.lastToken - span.firstToken) / 1000;
      const rate = span.tokens > 2 && seconds > 0.01 ? `, ${Math.round((span.tokens - 1) / seconds)}/s` : "";
      return span.tokens > 1 ? `${count(span.tokens, "token")}${rate}` : "";
    }
    case "tool":
    case "step":
      return span.data?.input == null ? "" : short(JSON.stringify(span.data.input));
    case "question": {
      const text = textOf(span.data?.message);
      return short(span.note ? `${text} – ${span.note}` : text);
    }
    case "queue":
      return span.data?.start_after ? "not before its start time" : "";
    default:
      return short(span.note);
  }
}

function recordLine(trace, index, view) {
  const record = trace.records[index];
  const span = trace.spans[trace.owners[index]];
  const group = view.fold ? trace.groups.get(index) : undefined;
  const last = group ? group.last : index;
  const until = group || record.until ? endOf(trace, last) : trace.times[index];
  const events = group?.n ?? record.n ?? 1;
  const isLoss = record.event_type === "loss_noted";
  return {
    row: index,
    kind: isLoss ? "loss" : "event",
    name: isLoss ? `loss: ${record.payload.feature}` : record.event_type,
    note: group || record.n ? short(`${count(events, "token")}: ${trace.groupText(index)}`) : recordNote(record),
    status: isLoss ? "loss" : "",
    start: trace.times[index],
    end: until,
    depth: span.depth + 1,
    expandable: false,
    expanded: false,
    hidden: "",
    event: record.event_id,
  };
}

function endOf(trace, index) {
  const { until } = trace.records[index];
  return (until && parseTime(until)) || trace.times[index];
}

/** Return the words of one record, in one line. */
export function recordNote({ event_type: type, payload }) {
  switch (type) {
    case "run_created":
      return short(payload.messages?.map(textOf).filter(Boolean).join(" ") || `input of cause ${payload.cause}`);
    case "part_delta":
      return short(payload.text);
    case "part_added":
      return short(`${payload.part.kind} ${partText(payload.part)}`);
    case "loss_noted":
      return short(payload.how);
    case "interrupt_answered":
      return short(`${payload.action}: ${JSON.stringify(payload.value)}`);
    case "artifact_added":
      return short(`${payload.part.kind} ${partText(payload.part)}`);
    case "run_ended":
      return short(`${payload.status} ${payload.output == null ? "" : JSON.stringify(payload.output)}`);
    case "custom":
      return short(`${payload.name} ${JSON.stringify(payload.value)}`);
    case "native":
      return short(`${payload.protocol} ${payload.event}`);
    case "upstream_bound":
      return short(
        `${payload.protocol} ${Object.entries(payload.ids)
          .map(([kind, id]) => `${kind} ${id}`)
          .join(", ")}`,
      );
    case "state_saved":
      return short(`step ${payload.step}, source ${payload.source}`);
    default:
      return short(JSON.stringify(payload ?? {}));
  }
}

/** Return the text of a message's parts. */
export function textOf(message) {
  return message?.parts?.map(partText).filter(Boolean).join(" ") ?? "";
}

function partText(part) {
  return part.text ?? part.name ?? (part.data === undefined ? "" : JSON.stringify(part.data));
}

function firstEvent(trace, span) {
  const first = span.items.find((item) => item >= 0);
  return first === undefined ? 0 : trace.records[first].event_id;
}

function short(text) {
  const line = (text ?? "")
    .slice(0, NOTE_LENGTH * 2)
    .replace(/\s+/g, " ")
    .trim();
  return line.length > NOTE_LENGTH ? `${line.slice(0, NOTE_LENGTH - 1)}…` : line;
}

/** Return the position of the row that shows a record, or that contains it; -1 if a filter hides it. */
export function positionOf(trace, rows, index) {
  const direct = rows.indexOf(index);
  if (direct >= 0) return direct;
  for (let span = trace.spans[trace.owners[index]]; span; span = trace.spans[span.parent]) {
    const at = rows.indexOf(~span.index);
    if (at >= 0) return at;
  }
  return -1;
}

/** Return the view in which a record has a row: its spans are expanded. @returns {Map<number, boolean>} */
export function revealing(trace, index, expanded = new Map()) {
  const next = new Map(expanded);
  for (let span = trace.spans[trace.owners[index]]; span; span = trace.spans[span.parent]) next.set(span.index, true);
  return next;
}
