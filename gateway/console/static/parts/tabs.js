/** Tabs: arrow keys move between them, as in the ARIA pattern with automatic activation. */

import { html, useId, useRef } from "./html.js";

/**
 * Tabs with the panel of the selected one.
 *
 * @param {object} props
 * @param {string} props.label
 * @param {{id: string, title: any}[]} props.tabs
 * @param {string} props.selected
 * @param {(id: string) => void} props.onSelect
 * @param {any} props.children Content of the selected tab.
 */
export function Tabs({ label, tabs, selected, onSelect, children }) {
  const prefix = useId();
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  /** @param {KeyboardEvent} event */
  const handleKey = (event) => {
    const index = tabs.findIndex(({ id }) => id === selected);
    const next = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const position = (next + tabs.length) % tabs.length;
    onSelect(tabs[position].id);
    /** @type {HTMLElement | undefined} */ (list.current?.querySelectorAll("[role=tab]")[position])?.focus();
  };
  return html`<div class="tabs">
    <div role="tablist" aria-label=${label} ref=${list} onKeyDown=${handleKey}>
      ${tabs.map(({ id, title }) => html`<button
        type="button" role="tab" key=${id} id="${prefix}-${id}" tabindex=${id === selected ? 0 : -1}
        aria-selected=${id === selected ? "true" : "false"} aria-controls="${prefix}-panel"
        onClick=${() => onSelect(id)}>${title}</button>`)}
    </div>
    <div role="tabpanel" id="${prefix}-panel" aria-labelledby="${prefix}-${selected}" data-tab=${selected}>${children}</div>
  </div>`;
}
