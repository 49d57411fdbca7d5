/** The browser's storage, which its user may forbid. */

/** Name of the API key in the storage of the tab. It ends with the tab, and no other tab sees it. */
const KEY = "babelgate.key";

/**
 * Return the result of an access to the browser's storage, or null if the browser forbids it.
 *
 * @template T
 * @param {() => T} access
 */
export function storage(access) {
  try {
    return access();
  } catch {
    return null;
  }
}

/** Return the API key of this tab, or null. */
export const readKey = () => storage(() => sessionStorage.getItem(KEY)) ?? null;

/** Store the API key of this tab, or remove it. @param {string | null} key */
export const writeKey = (key) =>
  void storage(() => (key === null ? sessionStorage.removeItem(KEY) : sessionStorage.setItem(KEY, key)));
