/** Tables of things: each row is one thing with one link. `j` and `k` move between the rows. */

import { html, useKeys, useRef } from "./html.js";

/**
 * @template T
 * @typedef {object} Column
 * @property {string} title Empty for a column of actions.
 * @property {(row: T) => any} cell
 * @property {boolean} [isNumber] Right-aligned.
 * @property {boolean} [isWide] Takes the space that the others leave, and wraps.
 * @property {boolean} [isHead] Names the row. One column of a table should.
 * @property {boolean} [isMinor] Hidden on narrow screens.
 */

/**
 * A table. On narrow screens each row becomes a block with the titles beside the values.
 *
 * @template T
 * @param {{label: string, columns: Column<T>[], rows: T[], rowKey: (row: T) => string, rowClass?: (row: T) => string}} props
 */
export function Table({ label, columns, rows, rowKey, rowClass }) {
  const body = useRef(/** @type {HTMLElement | null} */ (null));
  /** @param {number} step */
  const move = (step) => {
    const links = rowLinks(body.current);
    const row = document.activeElement?.closest("tbody tr");
    const index = links.findIndex((each) => row?.contains(each));
    links[index === -1 ? (step > 0 ? 0 : links.length - 1) : index + step]?.focus();
  };
  useKeys({ j: () => move(1), k: () => move(-1) });
  return html`<div class="table-frame"><table aria-label=${label}>
    <thead><tr>${columns.map(
      ({ title, isNumber, isMinor }) =>
        html`<th scope="col" class=${classes(isNumber && "number", isMinor && "minor")}>${title || html`<span class="visually-hidden">Actions</span>`}</th>`,
    )}</tr></thead>
    <tbody ref=${body}>${rows.map(
      (row) => html`<tr key=${rowKey(row)} class=${rowClass?.(row) ?? ""} data-key=${rowKey(row)}>
        ${columns.map((column) => cell(column, row))}
      </tr>`,
    )}</tbody>
  </table></div>`;
}

/** @param {Column<any>} column @param {any} row */
function cell({ title, cell, isNumber, isWide, isHead, isMinor }, row) {
  const look = classes(isNumber && "number", isWide && "wide", isMinor && "minor");
  if (isHead) return html`<th scope="row" class=${look} data-title=${title}><div>${cell(row)}</div></th>`;
  return html`<td class=${look} data-title=${title}><div>${cell(row)}</div></td>`;
}

/** The first link or button of each row. @param {HTMLElement | null} body @returns {HTMLElement[]} */
function rowLinks(body) {
  const rows = [...(body?.querySelectorAll(":scope > tr") ?? [])];
  return /** @type {HTMLElement[]} */ (rows.map((row) => row.querySelector("a, button")).filter(Boolean));
}

/** Join the names of classes that apply. @param {(string | false | null | undefined)[]} names */
export const classes = (...names) => names.filter(Boolean).join(" ");
