/** Details of one row of a timeline: a span with its edges, or one event. */

import { formatDuration, formatExact, formatNumber } from "../lib/time.js";
import { addressOf } from "./address.js";
import { Copy } from "./copy.js";
import { html } from "./html.js";
import { Json } from "./json.js";

/** @import { Trace, Span } from "../lib/spans.js" */

/**
 * @param {object} props
 * @param {Trace} props.trace
 * @param {number | null} props.row As `lib/outline` numbers rows.
 * @param {boolean} props.fold
 * @param {import("../lib/route.js").Route} props.route
 */
export function RowDetails({ trace, row, fold, route }) {
  if (row === null) return html`<p class="muted">Select a row to see its event. Arrow keys move, → and ← unfold and fold.</p>`;
  return row < 0
    ? html`<${SpanDetails} trace=${trace} span=${trace.spans[~row]} route=${route} />`
    : html`<${EventDetails} trace=${trace} index=${row} fold=${fold} route=${route} />`;
}

/** @param {{trace: Trace, index: number, fold: boolean, route: any}} props */
function EventDetails({ trace, index, fold, route }) {
  const record = trace.records[index];
  const group = fold ? trace.groups.get(index) : undefined;
  const isGroup = (group?.n ?? 1) > 1;
  return html`<h2>Event ${record.event_id} <code>${record.event_type}</code></h2>
    <${Tools} record=${record} route=${route} />
    <p class="muted">${formatExact(record.timestamp)}, ${formatDuration((trace.times[index] - trace.start) / 1000)} after the start, attempt ${record.attempt}</p>
    ${isGroup && html`<p>${formatNumber(group?.n)} tokens, joined:</p><pre class="words">${trace.groupText(index)}</pre>`}
    <${Json} value=${record.payload} label="Payload" open=${3} />`;
}

/** @param {{record: any, route: any}} props */
function Tools({ record, route }) {
  const address = new URL(addressOf(route, { at: record.event_id, view: null, find: null }), location.href).href;
  return html`<p class="actions">
    <${Copy} text=${() => JSON.stringify(record, null, 2)} name="event" />
    <${Copy} text=${address} label="Link" name="link to the event" />
    <a class="button small" href=${addressOf(route, { view: "seen", find: record.event_id, at: null })}>Find in every protocol</a>
  </p>`;
}

/** @param {{trace: Trace, span: Span, route: any}} props */
function SpanDetails({ trace, span, route }) {
  const own = span.items.filter((item) => item >= 0);
  const edges = own.length > 2 ? [own[0], own[own.length - 1]] : own;
  const facts = [
    ["started", `${formatDuration((span.start - trace.start) / 1000)} after the start`],
    ["took", span.end === null ? "not ended" : formatDuration((span.end - span.start) / 1000)],
    ["events", formatNumber(span.records)],
    span.tokens > 0 && ["tokens", formatNumber(span.tokens)],
    span.failures > 0 && ["failed inside", formatNumber(span.failures)],
    span.losses > 0 && ["losses inside", formatNumber(span.losses)],
    span.note && ["note", noteWithLink(span.note)],
  ].filter(Boolean);
  const first = trace.records[own[0]];
  return html`<h2>${span.name}</h2>
    ${first && html`<${Tools} record=${first} route=${route} />`}
    ${span.fault && html`<p class="tone-failed words">✕ <code>${span.fault.code}</code> ${span.fault.message}</p>`}
    <dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${edges.map(
      (index) => html`<details key=${index} open=${edges.length === 1 || index === edges[edges.length - 1]}>
        <summary>Event ${trace.records[index].event_id} <code>${trace.records[index].event_type}</code></summary>
        <${Json} value=${trace.records[index].payload} label="Payload" open=${2} />
      </details>`,
    )}`;
}

/** The run that a note names becomes a link. @param {string} note */
function noteWithLink(note) {
  const found = /^(.* by run )(\S+)$/.exec(note);
  return found ? html`${found[1]}<a href="#/runs/${found[2]}"><code>${found[2]}</code></a>` : note;
}
