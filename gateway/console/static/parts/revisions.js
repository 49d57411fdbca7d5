/** The tree of a thread's revisions, and the dialog to fork from one. */

import { count } from "../lib/time.js";
import { Dialog } from "./dialog.js";
import { html } from "./html.js";
import { Empty, Loaded, useGet } from "./state.js";
import { RelativeTime } from "./time.js";

/**
 * Order revisions as a tree: newest branches first, each with its depth. A chain without branches stays at one depth.
 *
 * @param {any[]} items
 * @returns {{revision: any, depth: number}[]}
 */
export function orderRevisions(items) {
  const ids = new Set(items.map(({ checkpoint_id }) => checkpoint_id));
  /** @type {Map<string | null, any[]>} */
  const children = new Map();
  for (const revision of items) {
    const parent = ids.has(revision.parent) ? revision.parent : null;
    children.set(parent, [...(children.get(parent) ?? []), revision]);
  }
  /** @type {{revision: any, depth: number}[]} */
  const ordered = [];
  const stack = (children.get(null) ?? []).map((revision) => ({ revision, depth: 0 })).reverse();
  while (stack.length) {
    const each = /** @type {{revision: any, depth: number}} */ (stack.pop());
    ordered.push(each);
    const next = children.get(each.revision.checkpoint_id) ?? [];
    for (const revision of next.toReversed()) stack.push({ revision, depth: each.depth + (next.length > 1 ? 1 : 0) });
  }
  return ordered;
}

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
      ${action(revision)}
    </li>`,
  )}</ol>`;
}

/** The end of an id, which differs where ids of one moment begin alike. @param {string} id */
export const shortId = (id) => (id.length > 14 ? `…${id.slice(-8)}` : id);

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
