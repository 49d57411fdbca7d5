/** The tree of a thread's revisions, and short forms of ids. */

/**
 * Order revisions as a tree, each with its depth. Where a thread was forked, the newer branches come first, one level
 * deeper, and the oldest continues at the same depth.
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
    for (const [index, revision] of [...next.entries()].reverse()) {
      stack.push({ revision, depth: each.depth + (index < next.length - 1 ? 1 : 0) });
    }
  }
  return ordered;
}

/** The end of an id, which differs where ids of one moment begin alike. @param {string} id */
export const shortId = (id) => (id.length > 14 ? `…${id.slice(-8)}` : id);
