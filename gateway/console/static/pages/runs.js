/** Runs of all threads, newest first. New runs wait until the reader asks for them. */

import { protocolText } from "../lib/protocol.js";
import { shortId } from "../lib/revisions.js";
import { link } from "../lib/route.js";
import { count, formatDuration, secondsBetween } from "../lib/time.js";
import { ChoiceFilter, setQuery, TextFilter } from "../parts/filters.js";
import { html } from "../parts/html.js";
import { ListLead, ListMore, useList } from "../parts/list.js";
import { Page } from "../parts/page.js";
import { Empty, Loaded, useGet } from "../parts/state.js";
import { Mark, Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { RelativeTime } from "../parts/time.js";

const STATUSES = ["pending", "running", "cancelling", "paused", "success", "error", "timeout", "cancelled"];
/** @type {[string, string][]} */
const PERIODS = [["1h", "the last hour"], ["24h", "the last 24 hours"], ["7d", "the last 7 days"]];

export const title = () => "Runs";

/** @param {{route: import("../lib/route.js").Route, me: any}} props */
export default function Runs({ route, me }) {
  const { agent, status, since, q } = route.query;
  const all = Boolean(route.query.all && me?.operator);
  // The texts belong to the owners, so nobody else searches them.
  const query = { agent, status, since, q: all ? undefined : q, all };
  const isFiltered = Boolean(agent || status || since || q);
  /** @param {any} change */
  const isFresh = (change) => (!agent || change.agent === agent) && (!status || change.status === status);
  const list = useList("runs", query, { kind: "run", idOf: ({ run_id: id }) => id, isFresh });
  const agents = useGet("agents");
  const names = (agents.value?.items ?? []).map((/** @type {any} */ each) => each.name);
  return html`<${Page} title="Runs" status=${list.status} lead=${html`<${ListLead} list=${list} noun="run" />`}>
    <div class="filters" role="search">
      ${!all && html`<${TextFilter} label="First words" name="q" route=${route} isFirst />`}
      <${ChoiceFilter} label="Agent" name="agent" route=${route} choices=${names} />
      <${ChoiceFilter} label="Status" name="status" route=${route} choices=${STATUSES} />
      <${ChoiceFilter} label="Since" name="since" route=${route} choices=${PERIODS} />
      ${me?.operator && me.keyed && html`<label class="check"><input type="checkbox" checked=${all}
        onChange=${(/** @type {any} */ event) => setQuery(route, { all: event.target.checked ? 1 : "", q: "" })} /> of all owners</label>`}
    </div>
    ${all && html`<p class="muted">For other owners' runs you see times and statuses, but no content.</p>`}
    <${Loaded} load=${list.load} rows=${8}>${() => list.items.length
      ? html`<${Table} label="Runs" columns=${columnsFor(all)} rows=${list.items} rowKey=${(/** @type {any} */ run) => run.run_id} /><${ListMore} list=${list} />`
      : isFiltered
        ? html`<${Empty} text="No run fits the filters."><button type="button" class="link" onClick=${() => setQuery(route, { q: "", agent: "", status: "", since: "" })}>Show all runs</button><//>`
        : html`<${Empty} text="No agent has run yet."><a href=${link(["agents"])}>Choose an agent</a> and try it.<//>`}<//>
  <//>`;
}

/** @param {boolean} isAll @returns {import("../parts/table.js").Column<any>[]} */
function columnsFor(isAll) {
  const started = { title: "Started", cell: (/** @type {any} */ run) => html`<${RelativeTime} at=${run.created_at} />` };
  const times = [
    { title: "Queued", isNumber: true, isMinor: true, cell: (/** @type {any} */ run) => formatDuration(secondsBetween(run.created_at, run.started_at)) },
    { title: "Took", isNumber: true, cell: (/** @type {any} */ run) => formatDuration(secondsBetween(run.started_at, run.ended_at)) },
    { title: "Through", isMinor: true, cell: (/** @type {any} */ run) => protocolText(run) },
  ];
  const agent = { title: "Agent", cell: (/** @type {any} */ run) => html`<a href=${link(["agents", run.agent])}>${run.agent}</a>` };
  const status = { title: "Status", cell: statusCell };
  const words = { title: "First words", isWide: true, cell: wordsCell };
  const owner = { title: "Owner", cell: (/** @type {any} */ run) => run.owner ?? "–" };
  const fault = { title: "Fault", cell: (/** @type {any} */ run) => (run.fault ? html`<code>${run.fault.code}</code>` : "") };
  const id = { title: "Run", isHead: true, cell: (/** @type {any} */ run) => html`<a href=${link(["runs", run.run_id])}><code title=${run.run_id}>${shortId(run.run_id)}</code></a>` };
  return isAll ? [id, status, agent, owner, fault, started, ...times] : [id, status, agent, words, started, ...times];
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
  return run.first_words || html`<span class="muted">no text</span>`;
}
