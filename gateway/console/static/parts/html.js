/** What every component needs of Preact, from one module: `html` templates, hooks, and hooks for stores and keys. */

import { Fragment, h, render } from "../vendor/preact.js";
import { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";
import { Shortcuts } from "../lib/keys.js";

export { Fragment, render, useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState };

/** Template tag: html`<p class="muted">${text}</p>`. Values are always text, never markup. */
export const html = htm.bind(h);

/**
 * Return the value of a store, and render again when it changes.
 *
 * @template T
 * @param {import("../lib/store.js").Store<T>} store
 * @returns {T}
 */
export function useStore(store) {
  const [, render] = useState(store.version);
  useEffect(() => {
    render(store.version); // a change between rendering and subscription
    return store.subscribe(() => render(store.version));
  }, [store]);
  return store.value;
}

/** The keyboard shortcuts of the shell and of the current page. */
export const shortcuts = new Shortcuts();

/**
 * Add keyboard shortcuts while a component is shown.
 *
 * @param {Record<string, () => void>} bindings
 */
export function useKeys(bindings) {
  const current = useRef(bindings);
  current.current = bindings;
  const names = Object.keys(bindings).join();
  useEffect(() => {
    const entries = names.split(",").filter(Boolean).map((name) => [name, () => current.current[name]()]);
    return shortcuts.add(Object.fromEntries(entries));
  }, [names]);
}

/** Return a number that changes every few seconds, so that relative times stay true. @param {number} [seconds] */
export function useTick(seconds = 10) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
  return now;
}
