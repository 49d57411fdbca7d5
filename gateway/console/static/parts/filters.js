/** Filters of a list. They are in the address, so that a link has them. */

import { link } from "../lib/route.js";
import { html, useEffect, useRef, useState } from "./html.js";

/**
 * Replace the query of the current page, without a new entry in the history.
 *
 * @param {import("../lib/route.js").Route} route
 * @param {Record<string, any>} changes
 */
export function setQuery(route, changes) {
  location.replace(link(route.path.split("/").map(decodeURIComponent), { ...route.query, ...changes }));
}

/**
 * A text filter, which takes effect when the typing pauses.
 *
 * @param {{label: string, name: string, route: import("../lib/route.js").Route, placeholder?: string, isFirst?: boolean}} props `isFirst`: the key `/` leads here.
 */
export function TextFilter({ label, name, route, placeholder, isFirst = false }) {
  const shown = route.query[name] ?? "";
  const [text, setText] = useState(shown);
  const current = useRef(route);
  current.current = route;
  useEffect(() => setText(shown), [shown]);
  useEffect(() => {
    if (text === shown) return;
    const timer = setTimeout(() => setQuery(current.current, { [name]: text }), 300);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<label class="field">${label}<input type="search" data-filter=${isFirst ? "" : null} placeholder=${placeholder ?? ""} value=${text}
    onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>`;
}

/**
 * A choice of one value, or all.
 *
 * @param {{label: string, name: string, route: import("../lib/route.js").Route, choices: (string | [string, string])[]}} props
 */
export function ChoiceFilter({ label, name, route, choices }) {
  const chosen = route.query[name] ?? "";
  const pairs = choices.map((choice) => (Array.isArray(choice) ? choice : [choice, choice]));
  if (chosen && !pairs.some(([value]) => value === chosen)) pairs.push([chosen, chosen]);
  return html`<label class="field">${label}<select value=${chosen} onChange=${(/** @type {any} */ event) => setQuery(route, { [name]: event.target.value })}>
    <option value="">all</option>${pairs.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
  </select></label>`;
}
