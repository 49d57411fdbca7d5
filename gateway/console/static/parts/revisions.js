/** The tree of a thread's revisions, and the dialog to fork from one. */

import { orderRevisions, shortId } from "../lib/revisions.js";
import { count } from "../lib/time.js";
import { Dialog } from "./dialog.js";
import { html } from "./html.js";
import { Empty, Loaded, useGet } from "./state.js";
import { RelativeTime } from "./time.js";

/**
 * Revisions as an indented list. `action` makes the button or link of each.
 *
 * @param {{items: any[], action: (revision: any) => any}} props
 */
export function Revisions({ items, action }) {
  return html`<ol class="revisions" aria-label="Revisions">${orderRevisions(items).map(
    ({ revision, depth }) => html`<li key=${revision.checkpoint_id} class="depth-${Math.min(depth, 6)}" data-revision=${revision.checkpoint_id}>
      <span aria-hidden="true" class="muted">${depth ? "└" : "•"}</span>
      <code title=${revision.checkpoint_id}>${shortId(revision.checkpoint_id)}</code>
      <span>${revision.source}${revision.next?.length > 0 && html`, next <span class="mono">${revision.next.join(", ")}</span>`}</span>
      <span class="muted"><${RelativeTime} at=${revision.at} /></span>
      ${revision === items[0] && html`<span class="muted">newest</span>`}
      ${action(revision)}
    </li>`,
  )}</ol>`;
}

/** @param {{threadId: string, onFork: (checkpointId: string) => void, onClose: () => void}} props */
export function ForkDialog({ threadId, onFork, onClose }) {
  const load = useGet(`threads/${threadId}/revisions`, { limit: 100 });
  return html`<${Dialog} title="Fork from a revision" onClose=${onClose} wide>
    <p class="muted">The next message starts from the state of the revision, as a branch of this thread.</p>
    <${Loaded} load=${load}>${(/** @type {any} */ value) => value.items.length === 0
      ? html`<${Empty} text="The thread has no revision yet: send a message first." />`
      : html`<p>${count(value.items.length, "revision")}${value.next ? ", the newest ones" : ""}</p>
        <${Revisions} items=${value.items} action=${(/** @type {any} */ { checkpoint_id }) =>
          html`<button type="button" class="small" onClick=${() => onFork(checkpoint_id)}>Fork from here</button>`} />`}<//>
  <//>`;
}
