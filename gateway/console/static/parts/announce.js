/** The one node that screen readers announce: short words such as "answering" and "done", never tokens. */

import { createStore } from "../lib/store.js";
import { html, useStore } from "./html.js";

const words = createStore("");

/** Announce some words. @param {string} text */
export const announce = (text) => words.set(text);

/** The node, which the shell shows once. */
export function Announcer() {
  return html`<div class="visually-hidden" role="status" data-announcer>${useStore(words)}</div>`;
}
