/** How the gateway is: queues, slots, streams, faults, the database, nodes and webhooks. */

import { link } from "../lib/route.js";
import { count, formatBytes, formatDuration, formatNumber } from "../lib/time.js";
import { agentHealth } from "../parts/agent.js";
import { html, useEffect } from "../parts/html.js";
import { Page } from "../parts/page.js";
import { Loaded, useGet } from "../parts/state.js";
import { Mark, Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { RelativeTime } from "../parts/time.js";

/** Milliseconds between two readings. Chosen: a reading takes 1 to 3 ms. */
const PERIOD = 5000;

export const title = () => "Health";

/** @param {{me: any}} props */
export default function Health({ me }) {
  const load = useGet("health");
  useEffect(() => {
    // A hidden tab reads nothing.
    const timer = setInterval(() => document.hidden || load.reload(), PERIOD);
    return () => clearInterval(timer);
  }, []);
  const status = load.value === null ? load.status : load.problem ? "stale" : "live";
  return html`<${Page} title="Health" status=${status} lead=${load.value && html`<${Verdict} health=${load.value} />`}>
    <${Loaded} load=${load} rows=${8}>${(/** @type {any} */ health) => html`
      ${health.database && html`<${Facts} health=${health} me=${me} />`}
      <${Faults} faults=${health.faults} />
      <${Queues} queues=${health.queues} />
      <${Agents} agents=${health.agents} />
      <${Nodes} nodes=${health.nodes} />`}<//>
  <//>`;
}

/** Return what is wrong, in words. @param {any} health */
function troublesOf({ database, agents = [], webhooks, queues = [], connections }) {
  const failing = agents.filter((/** @type {any} */ each) => !isOk(each)).length;
  const full = queues.filter((/** @type {any} */ each) => each.waiting > 0).length;
  return [
    database && !database.ok && `the database fails: ${database.why}`,
    failing > 0 && `${count(failing, "agent")} not ok`,
    full > 0 && `${count(full, "agent")} with waiting runs`,
    webhooks?.failing > 0 && `${count(webhooks.failing, "webhook")} failing`,
    connections && connections.limit && connections.used >= connections.limit && "all connections are used",
  ].filter(Boolean);
}

/** @param {any} agent */
const isOk = (agent) => (agent.health ?? agent.status ?? agentHealth(agent).word) === "ok";

/** @param {{health: any}} props */
function Verdict({ health }) {
  const troubles = troublesOf(health);
  return html`<p>${troubles.length ? html`<${Mark} tone="loss" glyph="!">${troubles.join("; ")}<//>` : html`<${Mark} tone="ok" glyph="✓">everything is ok<//>`}</p>
    ${health.uptime_seconds !== undefined && html`<p>up ${formatDuration(health.uptime_seconds)}, read every ${PERIOD / 1000} s</p>`}`;
}

/** @param {{health: any, me: any}} props */
function Facts({ health: { database, streams, connections, webhooks }, me }) {
  const facts = [
    ["database", html`<${Status} word=${database.ok ? "ok" : "failed"} text=${database.ok ? `${database.kind}, ok` : `${database.kind}: ${database.why}`} />`],
    ["free disk space", formatBytes(database.free_bytes)],
    ["streams", formatNumber(streams)],
    ["connections", connections ? `${formatNumber(connections.used)}${connections.limit ? ` of ${formatNumber(connections.limit)}` : ""}` : "–"],
    ["webhooks due", webhooks ? formatNumber(webhooks.due) : "–"],
    ["webhooks failing", webhooks ? html`<span class=${webhooks.failing ? "tone-failed" : ""}>${formatNumber(webhooks.failing)}</span>` : "–"],
    ["this node", html`<code>${me?.node || "–"}</code>`],
    ["version", me?.version ?? "–"],
  ];
  return html`<dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** @param {{faults: any[] | undefined}} props */
function Faults({ faults }) {
  if (!faults) return null;
  return html`<h2>Faults</h2>${faults.length
    ? html`<${Table} label="Faults" rows=${faults} rowKey=${(/** @type {any} */ each) => `${each.code} ${each.agent}`} columns=${[
        { title: "Code", isHead: true, cell: (/** @type {any} */ { code }) => html`<code>${code}</code>` },
        { title: "Agent", cell: (/** @type {any} */ { agent }) => agentLink(agent) },
        { title: "Count", isNumber: true, cell: (/** @type {any} */ each) => formatNumber(each.count) },
        { title: "Last", cell: (/** @type {any} */ each) => html`<${RelativeTime} at=${each.last_at} />` },
        { title: "", cell: (/** @type {any} */ { agent }) => html`<a href=${link(["runs"], { agent, status: "error" })}>Runs</a>` },
      ]} />`
    : html`<p class="muted">No run has failed since the start.</p>`}`;
}

/** @param {string | null | undefined} agent */
const agentLink = (agent) => (agent ? html`<a href=${link(["agents", agent])}>${agent}</a>` : "–");

/** @param {{queues: any[] | undefined}} props */
function Queues({ queues }) {
  if (!queues?.length) return null;
  const busy = queues.filter((each) => each.waiting || each.used || typeof each.limit === "number");
  const sorted = busy.sort((one, other) => other.waiting - one.waiting || other.used - one.used);
  const idle = queues.length - busy.length;
  return html`<h2>Slots and queues</h2>
    ${idle > 0 && html`<p class="muted">${count(idle, busy.length ? "other agent" : "agent")} with no slot limit and no active run.</p>`}
    ${sorted.length > 0 && html`<${Table} label="Slots and queues" rows=${sorted} rowKey=${(/** @type {any} */ each) => each.agent} columns=${[
    { title: "Agent", isHead: true, cell: (/** @type {any} */ { agent }) => agentLink(agent) },
    { title: "Slots used", isNumber: true, cell: (/** @type {any} */ { used, limit }) => `${formatNumber(used)}${limit === null || limit === undefined ? "" : ` of ${formatNumber(limit)}`}` },
    { title: "Use", cell: (/** @type {any} */ { used, limit }) => (limit ? html`<meter min="0" max=${limit} value=${Math.min(used, limit)} high=${limit * 0.9} aria-label="${used} of ${limit} slots"></meter>` : html`<span class="muted">no limit</span>`) },
    { title: "Waiting", isNumber: true, cell: (/** @type {any} */ { waiting }) => (waiting ? html`<strong>${formatNumber(waiting)}</strong>` : "0") },
    { title: "Longest wait", isNumber: true, cell: (/** @type {any} */ each) => formatDuration(each.oldest_seconds) },
  ]} />`}`;
}

/** @param {{agents: any[] | undefined}} props */
function Agents({ agents }) {
  if (!agents?.length) return null;
  return html`<h2>Agents</h2><${Table} label="Agents" rows=${agents} rowKey=${(/** @type {any} */ each) => each.name ?? each.agent} columns=${[
    { title: "Agent", isHead: true, cell: (/** @type {any} */ each) => agentLink(each.name ?? each.agent) },
    { title: "Health", cell: (/** @type {any} */ each) => (each.servers ? html`<${Status} ...${agentHealth(each)} />` : html`<${Status} word=${each.health ?? each.status ?? "ok"} />`) },
    { title: "Servers", isWide: true, cell: serversCell },
  ]} />`;
}

/** @param {any} agent */
function serversCell({ servers = [] }) {
  if (!servers.length) return html`<span class="muted">in this process</span>`;
  return servers.map((/** @type {any} */ { url, state, retry_in_seconds: retry }) => html`<div><${Status} word=${state} /> ${url && html`<code>${url}</code>`}${retry ? html` <span class="muted">retry in ${formatDuration(retry)}</span>` : ""}</div>`);
}

/** @param {{nodes: any[] | undefined}} props */
function Nodes({ nodes }) {
  if (!nodes?.length) return null;
  return html`<h2>Nodes</h2><${Table} label="Nodes" rows=${nodes} rowKey=${(/** @type {any} */ each) => each.name} columns=${[
    { title: "Node", isHead: true, cell: (/** @type {any} */ { name }) => html`<code>${name}</code>` },
    { title: "Role", cell: (/** @type {any} */ { leads }) => (leads ? "leader" : "follower") },
    { title: "Runs", isNumber: true, cell: (/** @type {any} */ { runs }) => formatNumber(runs) },
    { title: "Seen", cell: (/** @type {any} */ each) => html`<${RelativeTime} at=${each.seen_at} />` },
  ]} />`;
}
