/**
 * Spans of one run, built from its records one by one. No DOM.
 *
 * A span joins the records of one thing. Every record has one owner, so a tree of spans and records shows each record once.
 */

import { RunLog } from "./log.js";

/** @import { RunRecord } from "./log.js" */
/** @typedef {"run" | "queue" | "attempt" | "step" | "tool" | "message" | "artifact" | "question"} SpanKind */
/** @typedef {"open" | "ok" | "failed" | "void" | "cut" | "asks" | "cancelled"} SpanStatus */

/**
 * @typedef {object} Span
 * @property {number} index
 * @property {SpanKind} kind
 * @property {string} name
 * @property {string} key Kind and id, by which later records find the span.
 * @property {number} parent Index of the span above, or -1.
 * @property {number} depth
 * @property {number} start Milliseconds since 1970.
 * @property {number | null} end
 * @property {SpanStatus} status
 * @property {number[]} items What it contains, in order: indexes of records, and `~index` of spans.
 * @property {number} tokens
 * @property {number} firstToken Time of the first token.
 * @property {number} lastToken
 * @property {number} failures Number of failed spans below it.
 * @property {number} losses
 * @property {number} records Number of events of the span and of those below it.
 * @property {{code: string, message: string} | null} fault
 * @property {string} note
 * @property {number} lastGroup First record of the group of deltas that the next delta may join, or -1.
 * @property {any} data Payload of its first record.
 */

const NONE = -1;
const VOIDABLE = new Set(["message", "tool", "step", "artifact"]);
/** @type {Record<string, SpanStatus>} */
const STATUS_OF_RUN = { success: "ok", error: "failed", timeout: "failed", paused: "asks", cancelled: "cancelled" };

/** Records, spans and idle times of one run. */
export class Trace extends RunLog {
  constructor() {
    super();
    /** Index of the span that owns each record. @type {number[]} */
    this.owners = [];
    /** @type {Span[]} */
    this.spans = [];
    /** Groups of successive deltas of one part, by the index of the first. @type {Map<number, {n: number, last: number}>} */
    this.groups = new Map();
    this.losses = 0;
    this.ended = false;
    /** @type {Map<string, number>} */
    this._byKey = new Map();
    this._attempt = NONE;
  }

  get run() {
    return this.spans[0];
  }

  get start() {
    return this.spans.length ? this.spans[0].start : 0;
  }

  /** Add the next record. Records that are here already are ignored. @param {RunRecord} record */
  add(record) {
    if (!this.append(record)) return;
    const index = this.records.length - 1;
    const at = this.times[index];
    if (!index) this._open("run", "run", "", NONE, at);
    const owner = this._place(record, at);
    this.owners.push(owner);
    const span = this.spans[owner];
    for (let each = span; each; each = this.spans[each.parent]) each.records += record.n ?? 1;
    this._list(span, record, index);
  }

  /** Set when and how a question of this run was answered, as another run of its task recorded it. */
  answered(interruptId, at, note, action = "answer") {
    const span = this.spans[this._byKey.get(`question ${interruptId}`) ?? NONE];
    if (!span) return;
    span.end = at;
    span.status = action === "answer" ? "ok" : "cancelled";
    span.note = note;
    this.pass(at);
    this.end = Math.max(this.end, at);
  }

  /** Return the text of the group of deltas that starts at a record. */
  groupText(first) {
    const group = this.groups.get(first);
    const { payload } = this.records[first];
    if (!group) return payload.text ?? "";
    const texts = [];
    const { items } = this.spans[this.owners[first]];
    for (let i = items.indexOf(first); i < items.length && items[i] <= group.last; i += 1)
      texts.push(this.records[items[i]].payload.text);
    return texts.join("");
  }

  /** Add a record to the items of its span, and to the group of its part. */
  _list(span, record, index) {
    if (record.event_type === "part_delta") {
      const first = span.lastGroup;
      const before = first === NONE ? null : this.records[first].payload;
      span.items.push(index);
      if (before && before.index === record.payload.index && before.message_id === record.payload.message_id) {
        const group = this.groups.get(first);
        group.n += record.n ?? 1;
        group.last = index;
      } else {
        span.lastGroup = index;
        this.groups.set(index, { n: record.n ?? 1, last: index });
      }
      return;
    }
    span.lastGroup = NONE;
    span.items.push(index);
  }

  /** Open a span. @returns {number} its index */
  _open(kind, name, key, parent, start, status = "open") {
    const index = this.spans.length;
    const above = this.spans[parent];
    this.spans.push({
      index,
      kind,
      name,
      key,
      parent,
      depth: above ? above.depth + 1 : 0,
      start,
      end: null,
      status,
      items: [],
      tokens: 0,
      firstToken: 0,
      lastToken: 0,
      failures: 0,
      losses: 0,
      records: 0,
      fault: null,
      note: "",
      lastGroup: NONE,
      data: null,
    });
    if (key) this._byKey.set(key, index);
    if (above) {
      above.items.push(~index);
      above.lastGroup = NONE;
    }
    return index;
  }

  _close(index, at, status = "ok", fault = null) {
    const span = this.spans[index];
    span.end = at;
    span.status = status;
    span.fault = fault;
    if (status === "failed")
      for (let each = this.spans[span.parent]; each; each = this.spans[each.parent]) each.failures += 1;
  }

  /** Return the span in which something of a node happens: an open step of that node, or else the attempt. */
  _parentOf({ node, ns = [] }) {
    const name = node || (ns.length ? ns[ns.length - 1].split(":")[0] : "");
    for (let i = this.spans.length - 1; i > this._attempt && name; i -= 1) {
      const span = this.spans[i];
      if (span.kind === "step" && span.status === "open" && (span.data.node || span.name) === name) return i;
    }
    return this._attempt === NONE ? 0 : this._attempt;
  }

  /** Apply a record to the spans. @returns {number} the index of its owner */
  _place(record, at) {
    const { event_type: type, payload } = record;
    switch (type) {
      case "run_created": {
        const queue = this._open("queue", "queued", "queue", 0, at);
        this.spans[0].data = payload;
        this.spans[queue].data = payload;
        return 0;
      }
      case "run_started":
        return this._startAttempt(payload, at);
      case "run_ended":
        return this._endRun(payload, at);
      case "message_started": {
        const index = this._open(
          "message",
          payload.name || "message",
          `message ${payload.message_id}`,
          this._parentOf(payload),
          at,
        );
        this.spans[index].data = payload;
        return index;
      }
      case "part_added":
      case "part_delta":
      case "part_ended":
      case "message_ended":
        return this._placePart(record, at);
      case "tool_started":
      case "step_started": {
        const kind = type === "tool_started" ? "tool" : "step";
        const parent = kind === "tool" ? this._parentOf(payload) : this._parentOf({ ns: payload.ns ?? [] });
        const index = this._open(kind, payload.name, `${kind} ${payload.call_id ?? payload.step_id}`, parent, at);
        this.spans[index].data = payload;
        return index;
      }
      case "tool_ended":
      case "step_ended": {
        const kind = type === "tool_ended" ? "tool" : "step";
        const index =
          this._byKey.get(`${kind} ${payload.call_id ?? payload.step_id}`) ??
          this._open(kind, payload.name, "", this._parentOf(payload), at);
        this._close(index, at, payload.fault ? "failed" : "ok", payload.fault);
        return index;
      }
      case "artifact_added": {
        const key = `artifact ${payload.artifact_id}`;
        const known = payload.append ? this._byKey.get(key) : undefined;
        const index = known ?? this._open("artifact", payload.name || "artifact", key, this._parentOf(payload), at);
        if (payload.last) this._close(index, at);
        return index;
      }
      case "interrupt_raised": {
        const index = this._open(
          "question",
          payload.ask,
          `question ${payload.interrupt_id}`,
          this._parentOf(payload),
          at,
          "asks",
        );
        this.spans[index].data = payload;
        return index;
      }
      case "interrupt_answered": {
        const index = this._byKey.get(`question ${payload.interrupt_id}`);
        if (index === undefined) return this._attempt === NONE ? 0 : this._attempt;
        this._close(index, at, payload.action === "answer" ? "ok" : "cancelled");
        return index;
      }
      case "loss_noted": {
        const owner = this._parentOf(payload);
        this.losses += 1;
        for (let each = this.spans[owner]; each; each = this.spans[each.parent]) each.losses += 1;
        return owner;
      }
      default:
        return this._parentOf(payload ?? {});
    }
  }

  _placePart(record, at) {
    const { event_type: type, payload } = record;
    const index = this._byKey.get(`message ${payload.message_id}`);
    if (index === undefined) return this._attempt === NONE ? 0 : this._attempt;
    const span = this.spans[index];
    const count = type === "part_delta" ? (record.n ?? 1) : Number(Boolean(payload.open && payload.part?.text));
    if (count) {
      if (!span.tokens) span.firstToken = at;
      span.tokens += count;
      span.lastToken = this.end;
    }
    if (type === "message_ended") this._close(index, at);
    return index;
  }

  _startAttempt(payload, at) {
    const queue = this._byKey.get("queue");
    if (queue !== undefined && this.spans[queue].end === null) this._close(queue, at);
    const cutAt = this.times[this.times.length - 2] ?? at;
    if (this._attempt !== NONE) this._cut(cutAt, payload);
    const name =
      payload.attempt > 1 && payload.goes_on ? `attempt ${payload.attempt}, continued` : `attempt ${payload.attempt}`;
    this._attempt = this._open("attempt", name, "", 0, at);
    this.spans[this._attempt].data = payload;
    return this._attempt;
  }

  /** End the attempt that a new one replaces, and mark what the restart makes void. */
  _cut(at, { goes_on: resumed, void: ids }) {
    for (const span of this.spans) {
      if (span.depth === 0 || span.kind === "question") continue;
      const isVoid = !resumed && (ids == null || ids.includes(span.key.slice("message ".length)));
      if (span.end === null) this._close(span.index, at, "cut");
      if (isVoid && VOIDABLE.has(span.kind)) span.status = "void";
    }
  }

  _endRun(payload, at) {
    const status = STATUS_OF_RUN[payload.status] ?? "ok";
    this.ended = true;
    const isWhole = status === "ok" || status === "asks";
    for (const span of this.spans) {
      if (span.end !== null || span.index === 0 || span.index === this._attempt || span.kind === "question") continue;
      this._close(span.index, at, isWhole ? "ok" : "cut");
    }
    if (this._attempt !== NONE) this._close(this._attempt, at, status, payload.fault);
    const failures = this.spans[0].failures;
    this._close(0, at, status, payload.fault);
    this.spans[0].failures = failures;
    return 0;
  }
}
