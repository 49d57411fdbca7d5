/**
 * A value that components read and that tells them when it changes.
 *
 * Listeners run once per frame, however often the value changes in between. So a stream of 10,000 events a second costs
 * at most one rendering per frame.
 */

/**
 * @template T
 * @typedef {object} Store
 * @property {T} value The current value.
 * @property {number} version Number of changes so far.
 * @property {(next: T | ((value: T) => T)) => void} set Replace the value.
 * @property {() => void} touch Notify listeners of a change within the value.
 * @property {(listener: () => void) => () => void} subscribe Add a listener, and return a function that removes it.
 */

/** @type {(callback: () => void) => void} */
export const nextFrame = (callback) =>
  void (globalThis.requestAnimationFrame ? requestAnimationFrame(callback) : setTimeout(callback, 0));

/**
 * Create a store.
 *
 * @template T
 * @param {T} value
 * @param {(callback: () => void) => void} [schedule] Calls its argument before the next frame.
 * @returns {Store<T>}
 */
export function createStore(value, schedule = nextFrame) {
  const listeners = new Set();
  let isScheduled = false;
  const store = {
    value,
    version: 0,
    set(next) {
      const replaced = typeof next === "function" ? next(store.value) : next;
      if (Object.is(replaced, store.value)) return;
      store.value = replaced;
      store.touch();
    },
    touch() {
      store.version += 1;
      if (isScheduled) return;
      isScheduled = true;
      schedule(() => {
        isScheduled = false;
        for (const listener of [...listeners]) listener();
      });
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  return store;
}
