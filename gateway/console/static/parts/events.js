/** The records of a conversation as a list: time, event, the start of its payload, and all of it on demand. */

import { link } from "../lib/route.js";
import { count, formatNumber } from "../lib/time.js";
import { html, useMemo, useState } from "./html.js";
import { Json } from "./json.js";
import { Empty } from "./state.js";
import { Clock } from "./time.js";

/** Records shown at once. Chosen. */
const SHOWN = 200;

/** @param {{records: any[], version: number}} props */
export function Events({ records, version }) {
  const [filter, setFilter] = useState("");
  const [shown, setShown] = useState(SHOWN);
  const fitting = useMemo(() => records.filter((record) => fits(record, filter.trim().toLowerCase())), [records, version, filter]);
  if (!records.length) return html`<${Empty} text="No events yet: send a message." />`;
  const rows = fitting.slice(-shown).reverse();
  return html`<div class="filters" role="search">
      <label class="field">Filter events<input type="search" data-filter value=${filter} onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} /></label>
      <p class="muted" role="note">${filter ? `${formatNumber(fitting.length)} of ` : ""}${count(records.length, "event")}, newest first</p>
    </div>
    <ol class="events" aria-label="Events">${rows.map((record) => html`<${EventRow} key=${record.event_id} record=${record} />`)}</ol>
    ${rows.length < fitting.length && html`<button type="button" onClick=${() => setShown(shown + SHOWN)}>Show ${formatNumber(Math.min(SHOWN, fitting.length - rows.length))} more</button>`}`;
}

/** @param {any} record @param {string} words */
const fits = (record, words) => !words || record.event_type.includes(words) || JSON.stringify(record.payload).toLowerCase().includes(words);

/** @param {{record: any}} props */
function EventRow({ record }) {
  const [isOpen, setOpen] = useState(false);
  const { event_id, event_type, timestamp, payload, run_id, n } = record;
  return html`<li data-event=${event_id}>
    <button type="button" class="event-line" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => setOpen(!isOpen)}>
      <span aria-hidden="true">${isOpen ? "▾" : "▸"}</span> <span class="number">${event_id}</span>
      <${Clock} at=${timestamp} milliseconds /> <span class="mono">${event_type}${n > 1 && ` × ${n}`}</span>
      <span class="muted event-text">${isOpen ? "" : JSON.stringify(payload).slice(0, 160)}</span>
    </button>
    ${isOpen && html`<${Json} value=${record} label="Event ${event_id}" open=${3} /><p><a href=${link(["runs", run_id], { at: event_id })}>On the run page</a></p>`}
  </li>`;
}
