/**
 * Records of a thread's runs, folded into what people read: turns with messages, tools, steps, files and questions.
 *
 * Turns and items change in place, because a stream brings thousands of records. Each has a `version`, which grows with
 * every change, so that a component renders again only what changed.
 */

/**
 * @typedef {object} Part
 * @property {string} kind
 * @property {string} [text]
 * @property {boolean} [isOpen] True while more text may follow.
 * @property {any} [data]
 */

/**
 * @typedef {object} Item
 * @property {"message" | "tool" | "step" | "file" | "question" | "loss" | "custom"} type
 * @property {string} id
 * @property {number} version
 * @property {number} event Id of its first event.
 * @property {string} at
 * @property {string | null} endedAt
 * @property {any} [fault]
 * @property {Record<string, any>} of Members of its type; see the functions below.
 */

/**
 * @typedef {object} Turn
 * @property {string} runId
 * @property {string} status `pending`, `running`, or the status with which the run ended.
 * @property {string} cause `input`, `answer` and so on.
 * @property {any[]} inputs Messages of the caller.
 * @property {any} data Input that is not messages.
 * @property {Item[]} items
 * @property {boolean} hasSchema The output must fit a schema. Only the run's own route says whether it does.
 * @property {any} fault
 * @property {any} output
 * @property {any} usage
 * @property {number} attempt
 * @property {number} count Number of events.
 * @property {string | null} createdAt
 * @property {string | null} startedAt
 * @property {string | null} firstOutputAt
 * @property {string | null} endedAt
 * @property {number} last Id of the last event, or 0.
 * @property {number} version
 */

/** Events with which an agent shows its first output. */
const OUTPUT = new Set(["part_added", "tool_started", "step_started", "artifact_added", "interrupt_raised"]);
/** Records that are kept for the list of events. Chosen: about 2 MB. */
const MAX_RECORDS = 5_000;

/** The turns of one thread. */
export class Conversation {
  constructor() {
    /** @type {Turn[]} */
    this.turns = [];
    /** The newest records. @type {any[]} */
    this.records = [];
    this.version = 0;
    /** @type {Map<string, Turn>} */
    this._byRun = new Map();
    /** @type {Map<string, {item: Item, turn: Turn}>} */
    this._questions = new Map();
  }

  /** Return the turn of a run, which is added if it is new. @param {string} runId @returns {Turn} */
  turn(runId) {
    let turn = this._byRun.get(runId);
    if (!turn) {
      turn = newTurn(runId);
      this._byRun.set(runId, turn);
      this.turns.push(turn);
      this.version += 1;
    }
    return turn;
  }

  /** Add a turn of another conversation of the same thread at the end. @param {Turn} turn */
  adopt(turn) {
    if (this._byRun.has(turn.runId)) return;
    this._byRun.set(turn.runId, turn);
    this.turns.push(turn);
    for (const item of turn.items) if (item.type === "question") this._addQuestion(turn, item);
    this.version += 1;
  }

  /** Remove a turn, because its run was rolled back or erased. @param {string} runId */
  forget(runId) {
    const turn = this._byRun.get(runId);
    if (!turn) return;
    this._forget(turn.items);
    this._byRun.delete(runId);
    this.turns = this.turns.filter((each) => each !== turn);
    this.version += 1;
  }

  /** Mark the open questions of a run as superseded, because the run was cancelled. @param {string} runId */
  closeQuestions(runId) {
    for (const { item, turn } of this.openQuestions) {
      if (turn.runId !== runId) continue;
      item.of.answer = { action: "superseded", value: null, at: turn.endedAt };
      touch(turn, item);
    }
  }

  /** Questions that wait for an answer, with their turns. */
  get openQuestions() {
    return [...this._questions.values()].filter(({ item }) => !item.of.answer);
  }

  /** Apply records, in the order of their ids. @param {any[]} records */
  add(records) {
    for (const record of records) {
      const turn = this.turn(record.run_id);
      turn.count += record.n ?? 1;
      turn.last = Math.max(turn.last, record.to ?? record.event_id);
      turn.version += 1;
      if (OUTPUT.has(record.event_type)) turn.firstOutputAt ??= record.timestamp;
      APPLY[record.event_type]?.(turn, record, this);
      this.records.push(record);
    }
    if (this.records.length > MAX_RECORDS * 1.2) this.records = this.records.slice(-MAX_RECORDS);
    this.version += 1;
  }

  /** @param {Turn} turn @param {Item} item */
  _addQuestion(turn, item) {
    this._questions.set(item.id, { item, turn });
  }

  /** @param {any} payload @param {string} at */
  _answer({ interrupt_id, action, value }, at) {
    const found = this._questions.get(interrupt_id);
    if (!found) return;
    found.item.of.answer = { action, value, at };
    touch(found.turn, found.item);
  }

  /** Questions of content that a restart makes void are void, too. @param {Item[]} items */
  _forget(items) {
    for (const { type, id } of items) if (type === "question") this._questions.delete(id);
  }
}

/** @param {string} runId @returns {Turn} */
function newTurn(runId) {
  return {
    runId,
    status: "pending",
    cause: "input",
    inputs: [],
    data: null,
    items: [],
    hasSchema: false,
    fault: null,
    output: null,
    usage: null,
    attempt: 1,
    count: 0,
    createdAt: null,
    startedAt: null,
    firstOutputAt: null,
    endedAt: null,
    last: 0,
    version: 0,
  };
}

/** @param {Turn} turn @param {Item} item */
function touch(turn, item) {
  item.version += 1;
  turn.version += 1;
}

/** @param {Turn} turn @param {any} record @param {Item["type"]} type @param {string} id @param {Record<string, any>} of @returns {Item} */
function addItem(turn, record, type, id, of) {
  const item = { type, id, version: 0, event: record.event_id, at: record.timestamp, endedAt: null, of };
  turn.items.push(item);
  return item;
}

/** The newest item of a type with an id. @param {Turn} turn @param {Item["type"]} type @param {string} id */
const findItem = (turn, type, id) => turn.items.findLast((item) => item.type === type && item.id === id);

/** End the newest open item with this id. @param {Turn} turn @param {Item["type"]} type @param {string} id @param {any} record */
function endItem(turn, type, id, record) {
  const item = findItem(turn, type, id);
  if (!item) return null;
  item.endedAt = record.timestamp;
  touch(turn, item);
  return item;
}

/** What each event changes. Other events change only the count. @type {Record<string, (turn: Turn, record: any, conversation: any) => void>} */
const APPLY = {
  run_created(turn, { payload, timestamp }) {
    const { messages: inputs, data, cause, config } = payload;
    Object.assign(turn, { inputs, data, cause, createdAt: timestamp, hasSchema: Boolean(config?.response_format) });
  },
  run_started(turn, { payload, timestamp }, conversation) {
    turn.status = "running";
    turn.startedAt ??= timestamp;
    turn.attempt = payload.attempt;
    if (payload.attempt > 1 && !payload.goes_on) {
      /** @param {Item} item */
      const isVoid = (item) => payload.void === null || (item.type === "message" && payload.void.includes(item.id));
      conversation._forget(turn.items.filter(isVoid));
      turn.items = turn.items.filter((item) => !isVoid(item));
    }
  },
  run_ended(turn, { payload, timestamp }) {
    const { status, fault, output, usage } = payload;
    Object.assign(turn, { status, fault, output, usage, endedAt: timestamp });
    for (const item of turn.items) closeParts(item, timestamp);
  },
  message_started(turn, record) {
    const { message_id, role, name, phase } = record.payload;
    addItem(turn, record, "message", message_id, { role, name, phase, parts: [] });
  },
  part_added(turn, { payload }) {
    const item = findItem(turn, "message", payload.message_id);
    if (!item) return;
    item.of.parts[payload.index ?? item.of.parts.length] = { ...payload.part, isOpen: payload.open };
    touch(turn, item);
  },
  part_delta(turn, { payload }) {
    const item = findItem(turn, "message", payload.message_id);
    const part = item?.of.parts[payload.index ?? 0];
    if (!item || !part) return;
    const member = part.kind === "tool_call" ? "arguments" : "text";
    part[member] = (part[member] ?? "") + payload.text;
    touch(turn, item);
  },
  part_ended(turn, { payload }) {
    const item = findItem(turn, "message", payload.message_id);
    const part = item?.of.parts[payload.index ?? 0];
    if (!item || !part) return;
    part.isOpen = false;
    touch(turn, item);
  },
  message_ended(turn, record) {
    const item = endItem(turn, "message", record.payload.message_id, record);
    if (item) item.of.finish = record.payload.finish;
  },
  tool_started(turn, record) {
    const { call_id, name, input } = record.payload;
    addItem(turn, record, "tool", call_id, { name, input });
  },
  tool_ended(turn, record) {
    const item = endItem(turn, "tool", record.payload.call_id, record);
    if (item) Object.assign(item.of, { output: record.payload.output, fault: record.payload.fault });
  },
  step_started(turn, record) {
    const { step_id, name, input } = record.payload;
    addItem(turn, record, "step", step_id, { name, input });
  },
  step_ended(turn, record) {
    const item = endItem(turn, "step", record.payload.step_id, record);
    if (item) Object.assign(item.of, { update: record.payload.update, fault: record.payload.fault });
  },
  artifact_added(turn, record) {
    const { artifact_id, name, description, part, append, last } = record.payload;
    const item = append ? findItem(turn, "file", artifact_id) : null;
    if (item) {
      item.of.parts.push(part);
      item.endedAt = last ? record.timestamp : null;
      touch(turn, item);
    } else addItem(turn, record, "file", artifact_id, { name, description, parts: [part] });
  },
  interrupt_raised(turn, record, conversation) {
    const { interrupt_id, ask, message, value, answer_schema } = record.payload;
    const of = { kind: ask, message, value, schema: answer_schema, answer: null };
    conversation._addQuestion(turn, addItem(turn, record, "question", interrupt_id, of));
  },
  interrupt_answered(_turn, { payload, timestamp }, conversation) {
    conversation._answer(payload, timestamp);
  },
  loss_noted(turn, record) {
    addItem(turn, record, "loss", String(record.event_id), record.payload);
  },
  custom(turn, record) {
    addItem(turn, record, "custom", String(record.event_id), record.payload);
  },
};

/** @param {Item} item @param {string} at */
function closeParts(item, at) {
  if (item.type === "message") {
    for (const part of item.of.parts) if (part) part.isOpen = false;
    item.endedAt ??= at;
    item.version += 1;
  }
}

/** The plain text of some parts. @param {any[]} parts */
export const textOf = (parts) =>
  parts
    .filter((part) => part?.kind === "text")
    .map(({ text }) => text)
    .join("");
