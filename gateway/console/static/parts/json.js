/** JSON as a tree: 100 members per step, values and paths to copy, raw text above 1 MB. */

import { formatBytes, formatNumber } from "../lib/time.js";
import { Copy, copyText } from "./copy.js";
import { html, useMemo, useState } from "./html.js";

/** Members shown at once. */
const STEP = 100;
/** Characters from which JSON is shown as text, without a tree. */
const LARGE = 1_000_000;
/** Characters of a text that are shown before "more". */
const TEXT = 2_000;

/**
 * A JSON value as a tree. `open` is the number of levels that are unfolded at first.
 *
 * @param {{value: unknown, label?: string, open?: number}} props
 */
export function Json({ value, label = "JSON", open = 2 }) {
  const text = useMemo(() => (value === undefined ? "" : JSON.stringify(value, null, 2)), [value]);
  if (value === undefined) return html`<p class="muted">no value</p>`;
  if (text.length > LARGE) return html`<${RawText} text=${text} label=${label} />`;
  return html`<div class="json" role="group" aria-label=${label}>
    <div class="json-tools"><${Copy} text=${text} name=${label} label="Copy" /></div>
    <${Node} value=${value} path="$" name=${null} open=${open} />
  </div>`;
}

/**
 * A long text, of which a part is shown at first.
 *
 * @param {{text: string, label?: string}} props
 */
export function RawText({ text, label = "text" }) {
  const [length, setLength] = useState(LARGE / 10);
  return html`<div class="json" role="group" aria-label=${label}>
    <div class="json-tools">
      <span class="muted">${formatBytes(text.length)}, shown as text</span> <${Copy} text=${text} name=${label} />
    </div>
    <pre tabindex="0">${text.slice(0, length)}</pre>
    ${length < text.length && html`<button type="button" onClick=${() => setLength(length * 4)}>
      Show more (${formatBytes(text.length - length)} hidden)
    </button>`}
  </div>`;
}

/** @param {{value: any, path: string, name: string | number | null, open: number}} props */
function Node({ value, path, name, open }) {
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(STEP);
  if (typeof value !== "object" || value === null) {
    return html`<div class="json-line">${nameOf(name, path)}<${Scalar} value=${value} /></div>`;
  }
  const isList = Array.isArray(value);
  const size = isList ? value.length : Object.keys(value).length;
  const summary = isList ? `[${formatNumber(size)}]` : `{${formatNumber(size)}}`;
  if (!size) return html`<div class="json-line">${nameOf(name, path)}<span>${isList ? "[]" : "{}"}</span></div>`;
  const entries = isOpen ? (isList ? value.slice(0, shown).map(pair) : Object.entries(value).slice(0, shown)) : [];
  return html`<div class="json-node">
    <div class="json-line">
      <button type="button" class="fold" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => setOpen(!isOpen)}>
        <span aria-hidden="true">${isOpen ? "▾" : "▸"}</span><span class="visually-hidden">${name ?? "value"}</span>
      </button>
      ${nameOf(name, path)}<span class="muted">${summary}</span>
    </div>
    ${isOpen && html`<div class="json-members">
      ${entries.map(([key, member]) => html`<${Node}
        key=${key} name=${key} value=${member} path=${pathOf(path, key)} open=${open - 1} />`)}
      ${shown < size && html`<button type="button" class="small" onClick=${() => setShown(shown + STEP)}>
        ${formatNumber(Math.min(STEP, size - shown))} more of ${formatNumber(size)}
      </button>`}
    </div>`}
  </div>`;
}

/** @param {unknown} member @param {number} index @returns {[number, unknown]} */
const pair = (member, index) => [index, member];

/** @param {string} path @param {string | number} key */
const pathOf = (path, key) =>
  typeof key === "number" ? `${path}[${key}]` : /^[A-Za-z_]\w*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;

/** The name of a member, which copies its path. @param {string | number | null} name @param {string} path */
function nameOf(name, path) {
  if (name === null) return null;
  return html`<button type="button" class="json-name" title="Copy the path ${path}" onClick=${() => void copyText(path)}>
    ${name}</button><span class="muted">: </span>`;
}

/** @param {{value: string | number | boolean | null}} props */
function Scalar({ value }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof value !== "string") return html`<span class="json-${value === null ? "null" : typeof value}">${String(value)}</span>`;
  const text = JSON.stringify(isWhole || value.length <= TEXT ? value : value.slice(0, TEXT));
  return html`<span class="json-string">${text}</span>${text.length < value.length && html`
    <button type="button" class="small" onClick=${() => setWhole(true)}>… ${formatNumber(value.length - TEXT)} more characters</button>`}`;
}
