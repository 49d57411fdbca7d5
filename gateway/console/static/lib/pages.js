/** Modules of pages, which are imported on first use. */

/** Modules that have loaded, by name. @type {Map<string, any>} */
const loaded = new Map();

/**
 * Import a page. Names come from the table in lib/route.js.
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
