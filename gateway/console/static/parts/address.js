/** The query of the address: which view of a page is shown. */

import { link } from "../lib/route.js";

/**
 * Change members of the query, so that the address names what is shown. The page stays.
 *
 * @param {import("../lib/route.js").Route} route
 * @param {Record<string, string | number | boolean | null | undefined>} changes Empty members are left out.
 * @param {{replace?: boolean}} [options] `replace`: without a step in the browser's history, as for each letter of a filter.
 */
export function setQuery(route, changes, { replace = false } = {}) {
  const hash = addressOf(route, changes);
  if (hash === location.hash) return;
  if (replace) location.replace(hash);
  else location.hash = hash;
}

/**
 * Return the hash of a route with changes of its query.
 *
 * @param {import("../lib/route.js").Route} route
 * @param {Record<string, string | number | boolean | null | undefined>} changes
 */
export const addressOf = (route, changes) => link(route.path.split("/").map(decodeURIComponent), { ...route.query, ...changes });
