/** A table of marks: things by things, such as scenarios by protocols. */

import { html } from "./html.js";

/** Glyph, words and tone of the marks that reports use. @type {Record<string, [string, string, string]>} */
export const MARKS = {
  "✓": ["✓", "same as the others", "ok"],
  "◐": ["◐", "with a declared loss", "loss"],
  "✗": ["✕", "different", "failed"],
  "–": ["–", "not in the protocol", "muted"],
  "?": ["?", "not run", "muted"],
};

/**
 * @typedef {object} MatrixCell
 * @property {string} glyph
 * @property {string} word What the glyph means. It is shown on the pointer, and read aloud.
 * @property {string} tone
 * @property {string} [text] Shown beside the glyph.
 * @property {string} [href]
 */

/**
 * @param {object} props
 * @param {string} props.label
 * @param {string} [props.corner] Title of the first column.
 * @param {{id: string, title: any, about?: any}[]} props.rows
 * @param {{id: string, title: any}[]} props.columns
 * @param {(row: string, column: string) => MatrixCell | null} props.cell
 */
export function Matrix({ label, corner = "", rows, columns, cell }) {
  return html`<div class="matrix-frame" tabindex="0" role="region" aria-label=${label}>
    <table class="matrix" aria-label=${label}>
      <thead><tr>${corner ? html`<th scope="col">${corner}</th>` : html`<td></td>`}${columns.map((column) => html`<th scope="col" key=${column.id}>${column.title}</th>`)}</tr></thead>
      <tbody>${rows.map(
        (row) => html`<tr key=${row.id}>
          <th scope="row">${row.title}${row.about && html` <span class="matrix-about">${row.about}</span>`}</th>
          ${columns.map((column) => html`<td key=${column.id}><${Cell} value=${cell(row.id, column.id)} /></td>`)}
        </tr>`,
      )}</tbody>
    </table>
  </div>`;
}

/** @param {{value: MatrixCell | null}} props */
function Cell({ value }) {
  if (!value) return null;
  const { glyph, word, tone, text, href } = value;
  const content = html`<span class="tone-${tone}" aria-hidden="true">${glyph}</span>${text && html` ${text}`}<span class="visually-hidden"> ${word}</span>`;
  return href ? html`<a class="matrix-cell" href=${href} title=${word}>${content}</a>` : html`<span class="matrix-cell" title=${word}>${content}</span>`;
}

/** What the marks of a matrix mean. @param {{marks: string[]}} props */
export function Legend({ marks }) {
  return html`<p class="muted legend">${marks.map((mark) => {
    const [glyph, word, tone] = MARKS[mark];
    return html`<span><span class="tone-${tone}" aria-hidden="true">${glyph}</span> ${word}</span> `;
  })}</p>`;
}
