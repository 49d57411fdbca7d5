/** Exchanges: a request and its response, as conformance/report/report.schema.json describes them. */

import { curl } from "../lib/curl.js";
import { formatBytes, formatDuration } from "../lib/time.js";
import { Copy } from "./copy.js";
import { html, useState } from "./html.js";
import { Json, RawText } from "./json.js";

/** Frames that are shown at first, and per step. */
const STEP = 50;

/**
 * @typedef {object} Exchange
 * @property {number} number
 * @property {{method: string, url: string, headers: [string, string][], body: string}} request
 * @property {{status: number, headers: [string, string][], body: string, events: {seconds: number, text: string}[]}} [response]
 * @property {string} [error]
 * @property {number} seconds
 */

/**
 * One exchange with both messages.
 *
 * @param {{exchange: Exchange, open?: boolean}} props `open`: the headers are unfolded, too.
 */
export function ExchangeView({ exchange, open = false }) {
  const { request, response, error, seconds } = exchange;
  return html`<section class="exchange" aria-label="Exchange ${exchange.number}">
    <p class="exchange-line">
      <code class="wrap"><strong>${request.method}</strong> ${request.url}</code>
      ${response && html` <${HttpStatus} status=${response.status} />`} <span class="muted">${formatDuration(seconds)}</span>
      <${Copy} label="curl" name="curl command" text=${() => curl(request)} />
    </p>
    ${error && html`<p class="tone-failed words">✕ ${error}</p>`}
    <div class="exchange-sides">
      <div><p class="side-title">Request</p>
        <${Headers} headers=${request.headers} open=${open} />
        <${Body} text=${request.body} label="Request body" /></div>
      <div><p class="side-title">Response</p>
        ${response
          ? html`<${Headers} headers=${response.headers} open=${open} />
              ${response.events?.length > 0 && html`<${Frames} frames=${response.events} />`}
              ${(response.body || !response.events?.length) && html`<${Body} text=${response.body} label="Response body" />`}`
          : html`<p class="muted">There was no response.</p>`}</div>
    </div>
  </section>`;
}

/** An HTTP status: glyph, number, color. @param {{status: number}} props */
export function HttpStatus({ status }) {
  const isOk = status > 0 && status < 400;
  return html`<span class="status ${isOk ? "tone-ok" : "tone-failed"}" data-http=${status}>
    <span class="glyph" aria-hidden="true">${isOk ? "✓" : "✕"}</span> ${status || "no response"}</span>`;
}

/** @param {{headers: [string, string][], open?: boolean}} props */
export function Headers({ headers, open = false }) {
  if (!headers?.length) return null;
  return html`<details open=${open}>
    <summary>${headers.length === 1 ? "1 header" : `${headers.length} headers`}</summary>
    <dl class="headers">${headers.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
  </details>`;
}

/** A body: JSON as a tree, anything else as text. @param {{text: string, label: string}} props */
export function Body({ text, label }) {
  if (!text) return html`<p class="muted">no body</p>`;
  const value = parse(text);
  return value === undefined ? html`<${RawText} text=${text} label=${label} />` : html`<${Json} value=${value} label=${label} open=${3} />`;
}

/**
 * Frames of a stream with the time of each.
 *
 * @param {{frames: {seconds: number, text: string}[], marked?: Set<number>}} props `marked`: numbers of frames to emphasize.
 */
export function Frames({ frames, marked }) {
  const [shown, setShown] = useState(STEP);
  const [isTree, setTree] = useState(false);
  return html`<div class="frames">
    <p class="frames-head"><span class="muted">${frames.length === 1 ? "1 frame" : `${frames.length.toLocaleString("en-US")} frames`},
        ${" "}${formatBytes(frames.reduce((sum, each) => sum + each.text.length, 0))}</span>
      <label><input type="checkbox" checked=${isTree} onChange=${() => setTree(!isTree)} /> as trees</label>
      <${Copy} text=${() => frames.map((each) => each.text).join("\n\n")} name="frames" /></p>
    <ol class="frame-list">${frames.slice(0, shown).map(
      (frame, index) => html`<li key=${index} class=${marked?.has(index) ? "is-found" : ""}>
        <span class="muted frame-time">${formatDuration(frame.seconds)}</span>
        ${isTree ? html`<${FrameTree} text=${frame.text} />` : html`<pre>${frame.text}</pre>`}
      </li>`,
    )}</ol>
    ${shown < frames.length && html`<button type="button" class="small" onClick=${() => setShown(shown * 4)}>
      ${(Math.min(shown * 4, frames.length) - shown).toLocaleString("en-US")} more of ${frames.length.toLocaleString("en-US")} frames</button>`}
  </div>`;
}

/** @param {{text: string}} props */
function FrameTree({ text }) {
  const value = dataOf(text);
  return value === undefined ? html`<pre>${text}</pre>` : html`<${Json} value=${value} label="Frame" open=${1} />`;
}

/** Return the JSON of a frame's data, or undefined. @param {string} text */
export function dataOf(text) {
  const lines = text.split("\n").filter((line) => line.startsWith("data:"));
  return parse(lines.length ? lines.map((line) => line.slice(line[5] === " " ? 6 : 5)).join("\n") : text);
}

/** Return the value of a JSON text, or undefined. @param {string} text */
export function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
