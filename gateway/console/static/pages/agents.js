/** Page of all agents: what they are, how they are, and the ways to use them. */

import { link } from "../lib/route.js";
import { count, formatNumber } from "../lib/time.js";
import { agentHealth, behind, lastCheck, slotsText, useProtocolTitles } from "../parts/agent.js";
import { html, useMemo, useState } from "../parts/html.js";
import { useChanges } from "../parts/live.js";
import { Page } from "../parts/page.js";
import { Empty, LiveMark, Loaded, useGet } from "../parts/state.js";
import { Status } from "../parts/status.js";
import { Table } from "../parts/table.js";

export const title = () => "Agents";

const COLUMNS = [
  { title: "Name", isHead: true, cell: nameCell },
  { title: "What it does", isWide: true, cell: (/** @type {any} */ agent) => shorten(agent.description) },
  { title: "Backend", cell: (/** @type {any} */ agent) => agent.behind },
  { title: "Health", cell: (/** @type {any} */ agent) => html`<${Status} ...${agentHealth(agent)} />` },
  { title: "Slots", cell: (/** @type {any} */ agent) => slotsText(agent.slots) },
  { title: "24 h", cell: dayCell },
  { title: "Check", isMinor: true, cell: lastCheck },
  { title: "", cell: actions },
];

export default function Agents() {
  const load = useGet("agents");
  const [filter, setFilter] = useState("");
  const [kind, setKind] = useState("");
  const state = useChanges(["agent"], load.reload);
  const protocols = useProtocolTitles();
  const agents = useMemo(
    () => (load.value?.items ?? []).map((/** @type {any} */ agent) => ({ ...agent, behind: behind(agent, protocols) })),
    [load.value, protocols],
  );
  const kinds = useMemo(() => [...new Set(agents.map((/** @type {any} */ agent) => agent.behind))].sort(), [agents]);
  const words = filter.toLowerCase();
  const shown = agents.filter(
    (/** @type {any} */ agent) =>
      (!kind || agent.behind === kind) && `${agent.name} ${agent.description}`.toLowerCase().includes(words),
  );
  const failing = agents.filter((/** @type {any} */ agent) => agentHealth(agent).word !== "ok").length;
  const status = load.value ? (agents.length ? "ready" : "empty") : load.status;
  const lead = load.value && html`<p>${count(agents.length, "agent")}${failing > 0 && html`, <span class="tone-failed">${failing} not ok</span>`}</p>
    <${LiveMark} state=${state} />`;
  return html`<${Page} title="Agents" status=${load.problem && load.value ? "stale" : status} lead=${lead}>
    <${Loaded} load=${load} rows=${8}>${() => agents.length === 0
      ? html`<${Empty} text="The gateway serves no agents.">Start it with one: <code>babelgate serve echo=http://127.0.0.1:8333</code><//>`
      : html`<div class="filters" role="search">
          <label class="field">Filter<input type="search" data-filter value=${filter}
            onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} /></label>
          ${kinds.length > 1 && html`<label class="field">Backend<select value=${kind}
            onChange=${(/** @type {any} */ event) => setKind(event.target.value)}>
            <option value="">all</option>${kinds.map((each) => html`<option value=${each}>${each}</option>`)}
          </select></label>`}
        </div>
        ${shown.length === 0
          ? html`<${Empty} text="No agent fits the filter."><button type="button" class="link" onClick=${() => (setFilter(""), setKind(""))}>Show all ${agents.length}</button><//>`
          : html`<${Table} label="Agents" columns=${COLUMNS} rows=${shown} rowKey=${(/** @type {any} */ agent) => agent.name} />`}`}<//>
  <//>`;
}

/** @param {any} agent */
function nameCell(agent) {
  return html`<a href=${link(["agents", agent.name])}>${agent.name}</a>${agent.is_default && html` <span class="muted">default</span>`}`;
}

/** @param {any} agent */
function dayCell({ name, last24h }) {
  if (!last24h) return "–";
  return html`<a href=${link(["runs"], { agent: name })}>${formatNumber(last24h.runs)}${last24h.is_partial && "+"}</a>${last24h.failed > 0 &&
  html`, <a class="tone-failed" href=${link(["runs"], { agent: name, status: "error" })}>${formatNumber(last24h.failed)} failed</a>`}`;
}

/** @param {any} agent */
function actions({ name }) {
  return html`<span class="actions">
    <a href=${link(["agents", name, "try"])} aria-label="Try ${name}">Try</a>
    <a href=${link(["agents", name, "connect"])} aria-label="Connect to ${name}">Connect</a>
  </span>`;
}

/** The first sentence of a description. @param {string | null} description */
const shorten = (description) => {
  const first = (description ?? "").split(/\n\s*\n/)[0];
  return first.length > 140 ? `${first.slice(0, 139)}…` : first;
};
