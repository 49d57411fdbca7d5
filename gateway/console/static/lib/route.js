/** Hash routes: `#/agents/echo/try?text=Hello` names a page, its parameters and its query. */

/**
 * @typedef {object} Route
 * @property {string | null} page Name of the module in `pages/`, or null if no page matches.
 * @property {string} path The path without the query, as in the address.
 * @property {Record<string, string>} params Parameters of the path.
 * @property {Record<string, string>} query Parameters of the query. If a name is repeated, the last value counts.
 */

/** Patterns of paths, and the modules in `pages/` that show them. A segment `:name` is a parameter. */
const PAGES = /** @type {const} */ ([
  ["agents", "agents"],
  ["agents/:agent", "agent"],
  ["agents/:agent/try", "try"],
  ["agents/:agent/connect", "connect"],
  ["threads", "threads"],
  ["threads/:thread", "thread"],
  ["runs", "runs"],
  ["runs/:run", "run"],
  ["compare", "compare"],
  ["request", "request"],
  ["checks", "checks"],
  ["checks/:job", "check"],
  ["across", "across"],
  ["across/:job", "across-job"],
  ["bench", "bench"],
  ["bench/:job", "bench-job"],
  ["health", "health"],
  ["settings", "settings"],
  ["key", "key"],
  ["api", "api"],
]);

export const HOME = "agents";

/**
 * Return the route of a hash. An empty hash is the home page.
 *
 * @param {string} hash
 * @returns {Route}
 */
export function parseRoute(hash) {
  const [rawPath, ...rest] = hash.replace(/^#?\/?/, "").split("?");
  const path = rawPath.replace(/\/+$/, "") || HOME;
  const query = Object.fromEntries(new URLSearchParams(rest.join("?")));
  const segments = path.split("/").map(decode);
  for (const [pattern, page] of PAGES) {
    const params = match(pattern.split("/"), segments);
    if (params) return { page, path, params, query };
  }
  return { page: null, path, params: {}, query };
}

/**
 * Return the hash of a page. Empty members of the query are left out.
 *
 * @param {string[]} segments Segments of the path, not encoded.
 * @param {Record<string, string | number | boolean | null | undefined>} [query]
 * @returns {string}
 */
export function link(segments, query = {}) {
  const entries = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(entries.map(([name, value]) => [name, String(value)])).toString();
  return `#/${segments.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/**
 * @param {string[]} pattern
 * @param {(string | null)[]} segments
 * @returns {Record<string, string> | null}
 */
function match(pattern, segments) {
  if (pattern.length !== segments.length) return null;
  /** @type {Record<string, string>} */
  const params = {};
  for (const [index, expected] of pattern.entries()) {
    const segment = segments[index];
    if (!segment) return null;
    if (expected.startsWith(":")) params[expected.slice(1)] = segment;
    else if (expected !== segment) return null;
  }
  return params;
}

/** @param {string} segment */
function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return null; // an incomplete escape, such as "%2"
  }
}

/** Pages that have loaded, by the names of their modules. @type {Map<string, any>} */
const loaded = new Map();

/**
 * Import a page, by the name of its module.
 *
 * @param {string} name
 * @returns {Promise<any>}
 */
export function importPage(name) {
  const module = import(`../pages/${name}.js`);
  module.then(
    (page) => loaded.set(name, page),
    () => {}, // the caller reports it
  );
  return module;
}

/** Return the module of a page, or null if it has not loaded. @param {string} name */
export const findPage = (name) => loaded.get(name) ?? null;
