/** Losses that a response declares in its header `Babelgate-Loss` (docs/protocols/README.md). No DOM. */

/** @typedef {{feature: string, how: string}} Loss */

/**
 * Return the members of an RFC 8941 dictionary of strings. What is not one ends the list.
 *
 * @param {string | null | undefined} header
 * @returns {Loss[]}
 */
export function parseLosses(header) {
  /** @type {Loss[]} */
  const losses = [];
  const member = /\s*([a-z*][a-z0-9_.*-]*)(?:="((?:[^"\\]|\\["\\])*)")?\s*(?:,|$)/y;
  for (let found = member.exec(header ?? ""); found?.[0]; found = member.exec(header ?? "")) {
    losses.push({ feature: found[1], how: (found[2] ?? "").replace(/\\(["\\])/g, "$1") });
  }
  return losses;
}

/**
 * Join lists of losses. The first description of a feature counts.
 *
 * @param {...Loss[]} lists
 */
export function joinLosses(...lists) {
  /** @type {Map<string, Loss>} */
  const byFeature = new Map();
  for (const loss of lists.flat()) if (!byFeature.has(loss.feature)) byFeature.set(loss.feature, loss);
  return [...byFeature.values()];
}
