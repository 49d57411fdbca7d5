/** Two runs side by side, aligned by the kinds of their events: times, texts, usage. */

import { align, answerOf, marksOf, wordDifference } from "../lib/align.js";
import { shortId } from "../lib/revisions.js";
import { link } from "../lib/route.js";
import { formatDuration, formatNumber, secondsBetween } from "../lib/time.js";
import { setQuery } from "../parts/filters.js";
import { html, useMemo, useState } from "../parts/html.js";
import { Page } from "../parts/page.js";
import { Empty, Loaded, Loading, ProblemNote, useGet } from "../parts/state.js";
import { Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { useTrace } from "../parts/trace.js";

export const title = () => "Compare runs";

/** @param {{route: import("../lib/route.js").Route}} props `a` and `b` of the query are runs. */
export default function Compare({ route }) {
  const { a, b } = route.query;
  if (a && b) return html`<${Both} key=${`${a} ${b}`} route=${route} a=${a} b=${b} />`;
  return html`<${Page} title="Compare runs" status=${a ? "ready" : "empty"}>
    ${a ? html`<p>Run <a href=${link(["runs", a])}><code>${shortId(a)}</code></a> is the first one. Choose the second:</p><${Chooser} route=${route} a=${a} />`
      : html`<${Empty} text="Choose a run first."><a href=${link(["runs"])}>Open a run</a>, and press Compare on its page.<//>`}
  <//>`;
}

/** Runs of the same agent. @param {{route: any, a: string}} props */
function Chooser({ route, a }) {
  const first = useGet(`runs/${encodeURIComponent(a)}`);
  return html`<${Loaded} load=${first}>${(/** @type {any} */ run) => html`<${Candidates} route=${route} run=${run} />`}<//>
    <${OtherRun} route=${route} />`;
}

/** @param {{route: any, run: any}} props */
function Candidates({ route, run }) {
  const load = useGet("runs", { agent: run.agent, limit: 50 });
  return html`<${Loaded} load=${load}>${(/** @type {any} */ { items }) => {
    const others = items.filter((/** @type {any} */ each) => each.run_id !== run.run_id);
    if (!others.length) return html`<p class="muted">Agent ${run.agent} has no other run.</p>`;
    return html`<${Table} label="Runs of ${run.agent}" rows=${others} rowKey=${(/** @type {any} */ each) => each.run_id} columns=${[
      { title: "Run", isHead: true, cell: (/** @type {any} */ each) => html`<a href=${link(["compare"], { ...route.query, b: each.run_id })}><code>${shortId(each.run_id)}</code></a>` },
      { title: "Status", cell: (/** @type {any} */ each) => html`<${Status} word=${each.status} />` },
      { title: "First words", isWide: true, cell: (/** @type {any} */ each) => each.first_words },
      { title: "Took", isNumber: true, cell: (/** @type {any} */ each) => formatDuration(secondsBetween(each.started_at, each.ended_at)) },
    ]} />`;
  }}<//>`;
}

/** @param {{route: any}} props */
function OtherRun({ route }) {
  const [id, setId] = useState("");
  return html`<form class="filters" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), id.trim() && setQuery(route, { b: id.trim() }))}>
    <label class="field">Or the id of any run<input value=${id} onInput=${(/** @type {any} */ event) => setId(event.target.value)} /></label>
    <button type="submit">Compare</button></form>`;
}

/** @param {{route: any, a: string, b: string}} props */
function Both({ route, a, b }) {
  const runs = [useGet(`runs/${encodeURIComponent(a)}`), useGet(`runs/${encodeURIComponent(b)}`)];
  const traces = [useTrace(a, true), useTrace(b, true)];
  const problem = runs.find((each) => each.problem)?.problem ?? traces.find((each) => each.problem)?.problem;
  const isReady = runs.every((each) => each.value) && traces.every((each) => each.trace.spans.length > 0);
  const status = problem ? "error" : !isReady ? "loading" : traces.every((each) => each.state === "ended") ? "ready" : "live";
  const swap = html`<button type="button" onClick=${() => setQuery(route, { a: b, b: a })}>Swap</button>
    <a class="button" href=${link(["compare"], { a })}>Other run</a>`;
  return html`<${Page} title="Compare runs" status=${status} actions=${swap}>
    ${problem && html`<${ProblemNote} problem=${problem} retry=${() => [...runs, ...traces].forEach((each) => ("reload" in each ? each.reload() : each.retry()))} />`}
    ${isReady ? html`<${Heads} runs=${runs.map((each) => each.value)} />
      <${Texts} traces=${traces} />
      <${Marks} traces=${traces} ids=${[a, b]} />` : !problem && html`<${Loading} rows=${8} />`}
  <//>`;
}

/** Facts of both runs, and how they differ. @param {{runs: any[]}} props */
function Heads({ runs }) {
  const [a, b] = runs;
  const seconds = (/** @type {string} */ from, /** @type {string} */ to) => (/** @type {any} */ run) => secondsBetween(run[from], run[to]);
  const usage = [...new Set([...Object.keys(a.usage ?? {}), ...Object.keys(b.usage ?? {})])].filter((name) => typeof (a.usage?.[name] ?? b.usage?.[name]) === "number");
  const rows = [
    { name: "run", cell: (/** @type {any} */ run) => html`<a href=${link(["runs", run.run_id])}><code>${shortId(run.run_id)}</code></a>` },
    { name: "agent", cell: (/** @type {any} */ run) => run.agent },
    { name: "status", cell: (/** @type {any} */ run) => html`<${Status} word=${run.status} />` },
    { name: "took", of: seconds("started_at", "ended_at"), format: formatDuration },
    { name: "queued", of: seconds("created_at", "started_at"), format: formatDuration },
    { name: "first output", of: seconds("started_at", "first_output_at"), format: formatDuration },
    { name: "attempts", of: (/** @type {any} */ run) => run.attempt, format: formatNumber },
    { name: "losses", of: (/** @type {any} */ run) => run.losses?.length ?? 0, format: formatNumber },
    ...usage.map((name) => ({ name: name.replaceAll("_", " "), of: (/** @type {any} */ run) => run.usage?.[name] ?? null, format: formatNumber })),
  ];
  return html`<div class="matrix-frame" tabindex="0" role="region" aria-label="Both runs"><table class="compare-heads" aria-label="Both runs">
    <thead><tr><td></td><th scope="col">a</th><th scope="col">b</th><th scope="col">b compared with a</th></tr></thead>
    <tbody>${rows.map((/** @type {any} */ { name, cell, of, format }) => html`<tr key=${name}><th scope="row">${name}</th>
      <td data-title="a">${cell ? cell(a) : format(of(a))}</td><td data-title="b">${cell ? cell(b) : format(of(b))}</td><td data-title="b compared with a">${of && difference(of(a), of(b), format)}</td></tr>`)}</tbody>
  </table></div>`;
}

/** @param {number | null} a @param {number | null} b @param {(value: number) => string} format */
function difference(a, b, format) {
  if (a === null || b === null || a === undefined || b === undefined) return "–";
  // Less than the words of a duration show is no difference.
  if (a === b || (format === formatDuration && Math.abs(a - b) < 0.0005)) return html`<span class="muted">same</span>`;
  const factor = a > 0 && b > 0 ? `, × ${(b / a).toPrecision(2)}` : "";
  return `${b > a ? "+" : "−"}${format(Math.abs(b - a))}${factor}`;
}

/** @param {{traces: any[]}} props */
function Texts({ traces }) {
  const [a, b] = traces.map(({ trace }) => answerOf(trace));
  const pieces = useMemo(() => wordDifference(a, b), [a, b]);
  if (!a && !b) return null;
  return html`<h2>Texts</h2>
    ${a === b ? html`<p class="muted">Both runs answered the same text.</p><pre class="words">${a}</pre>` : html`<p class="muted legend"><span><del>only in a</del></span> <span><ins>only in b</ins></span></p>
      <pre class="words difference">${pieces.map(({ text, side }) => (side === "both" ? text : side === "a" ? html`<del>${text}</del>` : html`<ins>${text}</ins>`))}</pre>`}`;
}

/** @param {{traces: any[], ids: string[]}} props */
function Marks({ traces, ids }) {
  const [a, b] = traces.map(({ trace }) => trace);
  const pairs = useMemo(() => align(marksOf(a), marksOf(b)), [a, b, traces[0].version, traces[1].version]);
  const side = (/** @type {"a" | "b"} */ name, /** @type {string} */ id) => (/** @type {any} */ pair) => {
    const mark = pair[name];
    if (!mark) return html`<span class="muted">– not in ${name}</span>`;
    return html`<a href=${link(["runs", id], { at: mark.event })}>after ${formatDuration(mark.offset)}</a>${mark.seconds !== null && mark.seconds > 0 && html`, took ${formatDuration(mark.seconds)}`}
      ${mark.status === "failed" && html` <span class="tone-failed">✕ failed</span>`}${mark.text && html`<div class="meta compare-text">${mark.text.slice(0, 200)}</div>`}`;
  };
  return html`<h2>Events</h2><${Table} label="Events of both runs" rows=${pairs} rowKey=${(/** @type {any} */ pair) => `${pair.key} ${pair.a?.event ?? ""} ${pair.b?.event ?? ""}`}
    rowClass=${(/** @type {any} */ pair) => (pair.a && pair.b ? "" : "is-alone")} columns=${[
      { title: "What", isHead: true, cell: (/** @type {any} */ pair) => html`${pair.name} <span class="muted">${pair.kind === pair.name ? "" : pair.kind}</span>` },
      { title: "a", isWide: true, cell: side("a", ids[0]) },
      { title: "b", isWide: true, cell: side("b", ids[1]) },
      { title: "Difference", cell: (/** @type {any} */ pair) => (!pair.a || !pair.b ? html`<span class="tone-loss">only in ${pair.a ? "a" : "b"}</span>` : html`${difference(pair.a.seconds, pair.b.seconds, formatDuration)}${!pair.same && html`, <span class="tone-loss">other content</span>`}`) },
    ]} />`;
}
