/** Runs of all threads, newest first. New runs wait until the reader asks for them. */

import { get } from "../lib/api.js";
import { shortId } from "../lib/ids.js";
import { link } from "../lib/route.js";
import { count, formatDuration, secondsBetween } from "../lib/time.js";
import { setQuery } from "../parts/address.js";
import { announce } from "../parts/announce.js";
import { html, useEffect, useState } from "../parts/html.js";
import { useChanges } from "../parts/live.js";
import { Page } from "../parts/page.js";
import { Empty, LiveMark, Loaded, ProblemNote, asProblem, useGet, useLoad } from "../parts/state.js";
import { Mark, Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { RelativeTime } from "../parts/time.js";

const LIMIT = 50;
const STATUSES = ["pending", "running", "cancelling", "paused", "success", "error", "timeout", "cancelled"];
/** Seconds that each choice of "since" goes back. */
const PERIODS = { hour: 3600, day: 86_400, week: 604_800 };

export const title = () => "Runs";

/** @param {{route: import("../lib/route.js").Route, me: any}} props */
export default function Runs({ route, me }) {
  const { agent, status, since, q, all } = route.query;
  const query = { agent, status, q, all, since: periodStart(since), limit: LIMIT };
  const key = JSON.stringify([agent, status, since, q, all]);
  const load = useLoad((signal) => get("runs", query, { signal }), [key]);
  const [fresh, setFresh] = useState(/** @type {string[]} */ ([]));
  useEffect(() => setFresh([]), [key]);
  const isAll = Boolean(all) && me?.operator;
  const live = useChanges(["run"], (changes) => {
    if (!changes) return load.reload();
    const known = new Set((load.value?.items ?? []).map((/** @type {any} */ run) => run.run_id));
    const changed = changes.filter((each) => known.has(each.id)).map((each) => each.id);
    const created = changes.filter((each) => !known.has(each.id) && (!agent || each.agent === agent)).map((each) => each.id);
    if (created.length) setFresh((old) => [...new Set([...old, ...created])]);
    for (const id of new Set(changed)) void refresh(id, load);
  }, { all: isAll });
  const showFresh = () => {
    setFresh([]);
    load.reload();
    announce("The list is up to date");
  };
  const items = load.value?.items ?? [];
  const isFiltered = Boolean(agent || status || since || q);
  const state = load.value === null ? load.status : load.status === "stale" ? "stale" : items.length ? live === "live" ? "live" : "ready" : "empty";
  return html`<${Page} title="Runs" status=${state} lead=${html`<${LiveMark} state=${live} />`}>
    <${Filters} route=${route} me=${me} />
    ${fresh.length > 0 && html`<p><button type="button" data-fresh onClick=${showFresh}>${fresh.length} new</button></p>`}
    <${Loaded} load=${load} rows=${8}>${() => items.length
      ? html`<${Table} label="Runs" columns=${columnsFor(isAll)} rows=${items} rowKey=${(/** @type {any} */ run) => run.run_id} />
          <${More} load=${load} query=${query} />`
      : isFiltered
        ? html`<${Empty} text="No run fits the filters."><a href=${link(["runs"])}>Show all runs</a><//>`
        : html`<${Empty} text="No agent has run yet."><a href=${link(["agents"])}>Choose an agent</a> and try it.<//>`}<//>
  <//>`;
}

/** Replace one run of the list. @param {string} id @param {any} load */
async function refresh(id, load) {
  try {
    const run = await get(`runs/${encodeURIComponent(id)}`);
    load.set((/** @type {any} */ old) => ({ ...old, items: old.items.map((/** @type {any} */ each) => (each.run_id === id ? { ...each, ...run } : each)) }));
  } catch {
    // The run was removed, or belongs to another owner: its row stays as it is until the list is loaded again.
  }
}

/** @param {string | undefined} period */
function periodStart(period) {
  const seconds = /** @type {any} */ (PERIODS)[period ?? ""];
  return seconds ? new Date(Date.now() - seconds * 1000).toISOString() : undefined;
}

/** @param {{route: any, me: any}} props */
function Filters({ route, me }) {
  const agents = useGet("agents", { limit: 100 });
  const { agent = "", status = "", since = "", q = "", all } = route.query;
  const [words, setWords] = useState(q);
  useEffect(() => {
    const timer = setTimeout(() => setQuery(route, { q: words }, { replace: true }), 300);
    return () => clearTimeout(timer);
  }, [words]);
  const names = (agents.value?.items ?? []).map((/** @type {any} */ each) => each.name);
  if (agent && !names.includes(agent)) names.unshift(agent);
  const choose = (/** @type {string} */ name) => (/** @type {any} */ event) => setQuery(route, { [name]: event.target.value });
  return html`<div class="filters" role="search">
    <label class="field">First words<input type="search" data-filter value=${words} onInput=${(/** @type {any} */ event) => setWords(event.target.value)} /></label>
    <label class="field">Agent<select value=${agent} onChange=${choose("agent")}><option value="">all</option>${names.map((/** @type {string} */ name) => html`<option value=${name}>${name}</option>`)}</select></label>
    <label class="field">Status<select value=${status} onChange=${choose("status")}><option value="">all</option>${STATUSES.map((word) => html`<option value=${word}>${word}</option>`)}</select></label>
    <label class="field">Since<select value=${since} onChange=${choose("since")}><option value="">any time</option><option value="hour">the last hour</option><option value="day">the last 24 hours</option><option value="week">the last 7 days</option></select></label>
    ${me?.operator && me.keyed && html`<label class="check"><input type="checkbox" checked=${Boolean(all)} onChange=${(/** @type {any} */ event) => setQuery(route, { all: event.target.checked ? 1 : null })} /> runs of all owners</label>`}
  </div>`;
}

/** @param {boolean} isAll @returns {import("../parts/table.js").Column<any>[]} */
function columnsFor(isAll) {
  return [
    { title: "Run", isHead: true, cell: (run) => html`<a href=${link(["runs", run.run_id])}><code>${shortId(run.run_id)}</code></a>` },
    { title: "Status", cell: statusCell },
    { title: "Agent", cell: (run) => html`<a href=${link(["agents", run.agent])}>${run.agent}</a>` },
    ...(isAll ? [{ title: "Owner", cell: (/** @type {any} */ run) => run.owner ?? "–" }] : []),
    { title: "First words", isWide: true, cell: wordsCell },
    { title: "Started", cell: (run) => html`<${RelativeTime} at=${run.created_at} />` },
    { title: "Took", isNumber: true, cell: (run) => formatDuration(secondsBetween(run.started_at, run.ended_at)) },
    { title: "Queued", isNumber: true, isMinor: true, cell: (run) => formatDuration(secondsBetween(run.created_at, run.started_at)) },
    { title: "Through", isMinor: true, cell: (run) => `${run.protocol} ${run.version ?? ""}` },
  ];
}

/** @param {any} run */
function statusCell(run) {
  const losses = run.losses?.length ?? 0;
  return html`<${Status} word=${run.status} />${run.attempt > 1 && html` <span class="muted">attempt ${run.attempt}</span>`}
    ${losses > 0 && html` <${Mark} tone="loss" glyph="!">${count(losses, "loss", "losses")}<//>`}`;
}

/** @param {any} run */
function wordsCell(run) {
  if (run.fault) return html`${run.first_words} <span class="tone-failed"><code>${run.fault.code}</code> ${run.fault.message}</span>`;
  if (run.asks?.length) return html`${run.first_words} <span class="tone-asks">asks: ${run.asks[0].message}</span>`;
  return run.first_words ?? "";
}

/** @param {{load: any, query: any}} props */
function More({ load, query }) {
  const [state, setState] = useState({ isLoading: false, problem: /** @type {any} */ (null) });
  if (load.value.next === null || load.value.next === undefined) return html`<p class="muted">${count(load.value.items.length, "run")}, all that fit.</p>`;
  const add = async () => {
    setState({ isLoading: true, problem: null });
    try {
      const page = await get("runs", { ...query, after: load.value.next });
      load.set((/** @type {any} */ old) => ({ items: [...old.items, ...page.items], next: page.next }));
      setState({ isLoading: false, problem: null });
    } catch (error) {
      setState({ isLoading: false, problem: asProblem(error) });
    }
  };
  return html`<p><button type="button" disabled=${state.isLoading} onClick=${add}>${state.isLoading ? "Loading…" : "Older runs"}</button>
    <span class="muted"> ${count(load.value.items.length, "run")} shown</span></p>
    ${state.problem && html`<${ProblemNote} problem=${state.problem} retry=${add} />`}`;
}
