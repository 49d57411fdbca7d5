/** A status as glyph, word and color. The words are those of the glossary. */

import { html } from "./html.js";

/** Glyph and tone of each word. @type {Record<string, [string, string]>} */
const STATUSES = {
  // runs
  pending: ["○", ""],
  queued: ["○", ""],
  running: ["◐", "accent"],
  cancelling: ["◐", "loss"],
  success: ["✓", "ok"],
  error: ["✕", "failed"],
  timeout: ["✕", "failed"],
  cancelled: ["⊘", ""],
  paused: ["?", "asks"],
  input_required: ["?", "asks"],
  interrupted: ["?", "asks"],
  // threads
  idle: ["✓", ""],
  busy: ["◐", "accent"],
  // agents and their servers
  ok: ["✓", "ok"],
  failing: ["!", "loss"],
  open: ["✕", "failed"],
  probing: ["◐", "loss"],
  broken: ["✕", "failed"],
  disabled: ["⊘", ""],
  degraded: ["!", "loss"],
  // jobs
  waiting: ["○", ""],
  done: ["✓", "ok"],
  failed: ["✕", "failed"],
  passed: ["✓", "ok"],
  skipped: ["–", ""],
  // fidelity
  whole: ["✓", "ok"],
  loss: ["!", "loss"],
  none: ["–", ""],
};

/**
 * A status. `text` replaces the word, for example "broken: no module my_agents".
 *
 * @param {{word: string, text?: any}} props
 */
export function Status({ word, text }) {
  const [glyph, tone] = STATUSES[word] ?? ["·", ""];
  return html`<span class="status ${tone && `tone-${tone}`}" data-word=${word}>
    <span class="glyph" aria-hidden="true">${glyph}</span> ${text ?? word.replaceAll("_", " ")}
  </span>`;
}

/** A short mark such as "2 losses", in the color of a tone. @param {{tone: string, glyph?: string, children?: any}} props */
export function Mark({ tone, glyph, children }) {
  return html`<span class="status tone-${tone}">
    ${glyph && html`<span class="glyph" aria-hidden="true">${glyph}</span> `}${children}
  </span>`;
}
