/** Addresses of the current page with another query. */

import { link } from "../lib/route.js";

/** @typedef {import("../lib/route.js").Route} Route */

/**
 * Return the hash of a route with changes of its query. Empty members are left out.
 *
 * @param {Route} route
 * @param {Record<string, string | number | boolean | null | undefined>} changes
 */
export const addressOf = (route, changes) => link(route.path.split("/").map(decodeURIComponent), { ...route.query, ...changes });

/**
 * Change members of the query, as a step that the browser's back button undoes. `setQuery` of filters.js makes no step.
 *
 * @param {Route} route
 * @param {Record<string, string | number | boolean | null | undefined>} changes
 */
export function goTo(route, changes) {
  location.hash = addressOf(route, changes);
}
