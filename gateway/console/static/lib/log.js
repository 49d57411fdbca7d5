/** The log of one run in the browser: its records in order, their times, and the times without any. No DOM. */

import { parseTime } from "./time.js";

/**
 * @typedef {object} RunRecord Record of the minimal runtime (docs/protocols/runtime.md, "What a run says").
 * @property {number} event_id
 * @property {string} event_type
 * @property {number} attempt
 * @property {string} timestamp
 * @property {any} payload
 * @property {number} [n] Number of deltas that the gateway folded into this record.
 * @property {number} [to] Id of the last of them.
 * @property {string} [until] Time of the last of them.
 * @property {number[]} [stretches] If the ids of other parts lie between them: the numbers of ids that belong to this
 *   record and that do not, in turns.
 * @property {{event_id: number, timestamp: string, texts: string[]}[]} [deltas] Each of them, if the page asked for them.
 */

/** Shortest time without records that is idle, in milliseconds. Chosen. */
const IDLE = 5000;

/** Records of one run. */
export class RunLog {
  constructor() {
    /** @type {RunRecord[]} */
    this.records = [];
    /** Time of each record, in milliseconds since 1970. @type {number[]} */
    this.times = [];
    /** Highest id of an event. Joined deltas of several parts may alternate, so it need not be that of the last record. */
    this.last = 0;
    /** Time of the last event. */
    this.end = 0;
    /** Number of events, counting each delta that the gateway folded. */
    this.events = 0;
    /** Idle times, in order. @type {{from: number, to: number}[]} */
    this.gaps = [];
    /** @type {Map<string, string>} */
    this._strings = new Map();
    this._timestamp = "";
  }

  /**
   * Append the next record, and return true; or return false for one that is here already, because a reconnect may repeat
   * records.
   *
   * @param {RunRecord} record
   */
  append(record) {
    const index = this.records.length;
    const known = record.n === undefined ? this.last : (this.records[index - 1]?.event_id ?? 0);
    if (record.event_id <= known) return false;
    this.last = Math.max(this.last, lastId(record));
    // Records of one commit have the same time, and parsing it is the largest part of the work.
    const isSame = record.timestamp === this._timestamp;
    const at = isSame ? this.times[index - 1] : (parseTime(record.timestamp) ?? this.end);
    this._timestamp = record.timestamp;
    if (index) this.pass(at);
    this.end = Math.max(at, this.end, (record.until && parseTime(record.until)) || 0);
    this._share(record.payload);
    this.records.push(record);
    this.times.push(at);
    this.events += record.n ?? 1;
    return true;
  }

  /** Note that nothing happened between the last event and a time, if that is idle. @param {number} at */
  pass(at) {
    if (at - this.end > IDLE) this.gaps.push({ from: this.end, to: at });
  }

  /**
   * Return the index of the record with an event, alone or folded, or -1.
   *
   * @param {number} eventId
   */
  indexOf(eventId) {
    let low = 0;
    let high = this.records.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.records[middle].event_id <= eventId) low = middle + 1;
      else high = middle - 1;
    }
    // The last record that begins before the event. Folded deltas of several parts may alternate, so an earlier one can have it.
    while (high >= 0 && !hasEvent(this.records[high], eventId)) high -= 1;
    return high;
  }

  /** Replace a message id by one copy of it: JSON.parse makes a new string for each of 50,000 deltas. @param {any} payload */
  _share(payload) {
    const id = payload?.message_id;
    if (typeof id !== "string") return;
    const shared = this._strings.get(id);
    if (shared === undefined) this._strings.set(id, id);
    else payload.message_id = shared;
  }
}

/** True if an event is one of a record, alone or folded. @param {RunRecord} record @param {number} eventId */
function hasEvent(record, eventId) {
  if (eventId < record.event_id || eventId > lastId(record)) return false;
  let end = record.event_id;
  for (const [index, length] of (record.stretches ?? []).entries()) {
    end += length;
    if (eventId < end) return index % 2 === 0;
  }
  return true;
}

/** Return the id of a record's last event. @param {RunRecord} record */
export const lastId = (record) => record.to ?? record.event_id;

/**
 * Return the records that the gateway listed in others: each delta is a record of its own.
 *
 * @param {RunRecord[]} records
 * @returns {RunRecord[]}
 */
export function unfold(records) {
  /** @type {RunRecord[]} */
  const whole = [];
  for (const record of records) {
    const { deltas, n, to, until, ...common } = record;
    if (!deltas) whole.push(record);
    else
      for (const { event_id, timestamp, texts } of deltas)
        for (let i = 0; i < texts.length; i += 1)
          whole.push({ ...common, event_id: event_id + i, timestamp, payload: { ...common.payload, text: texts[i] } });
  }
  return whole.sort((one, other) => one.event_id - other.event_id); // deltas of several parts may alternate
}
