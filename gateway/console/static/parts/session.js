/** Who uses the console: the API key, the caller that the gateway sees, and settings of this browser. */

import { configure, get, hasKey } from "../lib/api.js";
import { readKey, storage, writeKey } from "../lib/storage.js";
import { createStore } from "../lib/store.js";
import { asProblem } from "./state.js";

/**
 * @typedef {object} Me
 * @property {string} owner
 * @property {string} subject
 * @property {string[]} groups
 * @property {boolean} operator
 * @property {boolean} keyed True if the gateway needs credentials.
 * @property {string} version
 * @property {string} instance
 * @property {string} node
 * @property {{file_bytes: number, body_bytes: number}} limits
 * @property {Record<string, boolean>} can
 */

/** @typedef {{status: "loading" | "ready" | "locked" | "error", me: Me | null, problem: any}} Session */

/** @type {import("../lib/store.js").Store<Session>} */
export const session = createStore({ status: "loading", me: null, problem: null });

/** Read the key of this tab, and find out who the caller is. */
export async function openSession() {
  configure({
    base: document.baseURI,
    key: readKey(),
    onUnauthenticated: () => session.set((value) => ({ ...value, status: "locked" })),
  });
  await loadMe();
}

/** Ask the gateway who the caller is. */
export async function loadMe() {
  try {
    const me = await get("me");
    session.set({ status: "ready", me, problem: null });
  } catch (error) {
    const problem = asProblem(error);
    session.set({ status: problem.status === 401 ? "locked" : "error", me: null, problem });
  }
}

/**
 * Use a key for all requests of this tab, or none.
 *
 * @param {string | null} key
 */
export async function setKey(key) {
  configure({ key });
  writeKey(key);
  await loadMe();
}

export { hasKey };

/** Settings of this browser. @typedef {{scheme: "system" | "light" | "dark", singleKeys: boolean}} Preferences */

const PREFERENCES = "babelgate.preferences";

/** @type {import("../lib/store.js").Store<Preferences>} */
export const preferences = createStore({
  scheme: "system",
  singleKeys: true,
  ...storage(() => JSON.parse(localStorage.getItem(PREFERENCES) ?? "{}")),
});

/** Change settings of this browser. @param {Partial<Preferences>} changes */
export function setPreferences(changes) {
  preferences.set((value) => ({ ...value, ...changes }));
  storage(() => localStorage.setItem(PREFERENCES, JSON.stringify(preferences.value)));
}
