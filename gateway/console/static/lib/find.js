/**
 * One event of a run, found in what a protocol shows of the run. No DOM.
 *
 * No protocol keeps the events as they are, so the search is for what identifies an event: its ids, its name, its text.
 */

/** @import { RunRecord } from "./log.js" */
/** @typedef {{text: string, what: string}} Clue */

/** Features of `Babelgate-Loss` that explain why a protocol does not show an event. */
const FEATURES = {
  tool_started: ["tool-activity"],
  tool_ended: ["tool-activity"],
  step_started: ["step"],
  step_ended: ["step"],
  artifact_added: ["artifact", "artifact-append", "file-bytes", "file-url"],
  interrupt_raised: ["question", "questions", "answer-schema", "auth-request"],
  interrupt_answered: ["question"],
  state_saved: ["state"],
  custom: ["custom"],
  native: ["custom"],
  run_ended: ["usage", "structured-output", "fault"],
  run_created: ["metadata"],
};
const PART_FEATURES = { reasoning: "reasoning", refusal: "refusal", annotation: "citation", data: "data", tool_call: "tool-activity", tool_result: "tool-activity" };
const IDS = ["message_id", "call_id", "step_id", "artifact_id", "interrupt_id", "checkpoint_id"];
/** Shorter texts match by accident. Chosen. */
const MIN_TEXT = 3;

/**
 * Return what identifies an event, best first.
 *
 * @param {RunRecord} record
 * @returns {Clue[]}
 */
export function cluesOf({ payload, event_type: type }) {
  /** @type {Clue[]} */
  const clues = [];
  for (const name of IDS) if (typeof payload[name] === "string") clues.push({ text: payload[name], what: name });
  const texts = [payload.text, payload.part?.text, payload.part?.name, payload.fault?.message];
  for (const part of payload.message?.parts ?? []) texts.push(part.text);
  if (type === "run_created") for (const each of payload.messages ?? []) for (const part of each.parts ?? []) texts.push(part.text);
  for (const text of texts) if (typeof text === "string" && text.trim().length >= MIN_TEXT) clues.push({ text: text.trim(), what: "text" });
  if (typeof payload.name === "string" && payload.name.length >= MIN_TEXT) clues.push({ text: payload.name, what: "name" });
  return clues;
}

/**
 * Return where clues occur in a JSON value: the paths of the best clue that occurs at all.
 *
 * @param {unknown} value
 * @param {Clue[]} clues
 * @param {number} [limit] Most paths that are returned.
 * @returns {{clue: Clue, paths: string[]} | null}
 */
export function findClues(value, clues, limit = 20) {
  for (const clue of clues) {
    /** @type {string[]} */
    const paths = [];
    walk(value, "$", clue, paths, limit);
    if (paths.length) return { clue, paths };
  }
  for (const clue of clues.filter(({ what }) => what === "text")) {
    const paths = piecesOf(value, clue.text);
    if (paths.length) return { clue, paths };
  }
  return null;
}

/**
 * Return the paths of the first and the last piece of a text that a protocol shows in pieces, one for each token.
 *
 * @param {unknown} value
 * @param {string} text
 */
function piecesOf(value, text) {
  /** @type {Map<string, {path: string, piece: string}[]>} */
  const byName = new Map();
  const listOf = (/** @type {string} */ name) => byName.get(name) ?? byName.set(name, []).get(name) ?? [];
  const collect = (/** @type {any} */ each, /** @type {string} */ path, /** @type {string} */ name) => {
    if (typeof each === "string") {
      if (each && text.includes(each.trim())) listOf(name).push({ path, piece: each });
    } else if (Array.isArray(each)) each.forEach((member, index) => collect(member, `${path}[${index}]`, name));
    else if (each && typeof each === "object") for (const [key, member] of Object.entries(each)) collect(member, `${path}.${key}`, key);
  };
  collect(value, "$", "");
  for (const pieces of byName.values()) {
    const start = pieces.map(({ piece }) => piece).join("").indexOf(text);
    if (start === -1) continue;
    const at = (/** @type {number} */ offset) => {
      let rest = offset;
      return pieces.find(({ piece }) => (rest -= piece.length) < 0)?.path ?? "";
    };
    return [at(start), at(start + text.length - 1)];
  }
  return [];
}

/** @param {any} value @param {string} path @param {Clue} clue @param {string[]} paths @param {number} limit */
function walk(value, path, clue, paths, limit) {
  if (paths.length >= limit) return;
  if (typeof value === "string") {
    if (clue.what === "text" ? value.includes(clue.text) : value === clue.text) paths.push(path);
  } else if (Array.isArray(value)) value.forEach((each, index) => walk(each, `${path}[${index}]`, clue, paths, limit));
  else if (value && typeof value === "object") {
    for (const [name, each] of Object.entries(value)) walk(each, `${path}.${name}`, clue, paths, limit);
  }
}

/**
 * Return the declared losses that explain why an event is not shown.
 *
 * @param {RunRecord} record
 * @param {{feature: string, how: string}[]} losses
 */
export function explain({ event_type: type, payload }, losses) {
  const features = [...(/** @type {any} */ (FEATURES)[type] ?? [])];
  const part = /** @type {any} */ (PART_FEATURES)[payload.part?.kind];
  if (part) features.push(part);
  if (type === "loss_noted") features.push(payload.feature);
  if (payload.phase === "progress") features.push("progress");
  return losses.filter(({ feature }) => features.includes(feature));
}
