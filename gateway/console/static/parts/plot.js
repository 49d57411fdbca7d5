/** Plots in SVG: intervals on one axis, and the times of attempts. Each has the same values as text for screen readers. */

import { niceTicks } from "../lib/axis.js";
import { html } from "./html.js";

const WIDTH = 640;
const LABEL = 150;
const VALUE = 110;
const ROW = 28;
const HEAD = 22;

/**
 * @typedef {object} IntervalRow
 * @property {string} label
 * @property {number | null} value
 * @property {number | null} [low]
 * @property {number | null} [high]
 * @property {number[]} [points] Single values, drawn as small dots.
 * @property {string} text The values in words.
 */

/**
 * A dot with its interval for each row.
 *
 * @param {object} props
 * @param {string} props.label
 * @param {IntervalRow[]} props.rows
 * @param {(value: number) => string} props.format Words of a tick.
 * @param {[number, number]} [props.domain] Ends of the axis; from 0 to the largest value by default.
 */
export function IntervalPlot({ label, rows, format, domain }) {
  const values = rows.flatMap(({ value, low, high, points = [] }) => [value, low, high, ...points]).filter((each) => typeof each === "number");
  if (!values.length) return html`<p class="muted">${label}: no values.</p>`;
  const [first, last] = domain ?? [0, Math.max(...values) * 1.05 || 1];
  const inner = WIDTH - LABEL - VALUE;
  const x = (/** @type {number} */ value) => LABEL + ((value - first) / (last - first || 1)) * inner;
  const height = HEAD + rows.length * ROW;
  return html`<figure class="plot" tabindex="0">
    <figcaption>${label}</figcaption>
    <svg viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${label}: ${rows.map((row) => `${row.label} ${row.text}`).join("; ")}">
      ${niceTicks(first, last, 5).map(
        (tick) => html`<g key=${tick}><line class="grid" x1=${x(tick)} x2=${x(tick)} y1=${HEAD - 4} y2=${height} />
          <text class="tick-text" x=${x(tick)} y=${HEAD - 8} text-anchor="middle">${format(tick)}</text></g>`,
      )}
      ${rows.map((row, index) => html`<g key=${row.label} transform="translate(0 ${HEAD + index * ROW + ROW / 2})"><${Row} row=${row} x=${x} /></g>`)}
    </svg>
  </figure>`;
}

/** @param {{row: IntervalRow, x: (value: number) => number}} props */
function Row({ row, x }) {
  const { label, value, low, high, points = [], text } = row;
  const hasInterval = typeof low === "number" && typeof high === "number";
  return html`
    <text class="row-text" x="0" dy="4">${label.length > 20 ? `${label.slice(0, 19)}…` : label}<title>${label}</title></text>
    ${points.map((point, index) => html`<circle key=${index} class="point" cx=${x(point)} cy="0" r="2.5" />`)}
    ${hasInterval && html`<path class="interval" d="M ${x(low)} -5 v 10 M ${x(low)} 0 H ${x(high)} M ${x(high)} -5 v 10" />`}
    ${typeof value === "number" && html`<circle class="value" cx=${x(value)} cy="0" r="5" />`}
    <text class="row-text" x=${WIDTH} dy="4" text-anchor="end">${text}</text>`;
}
