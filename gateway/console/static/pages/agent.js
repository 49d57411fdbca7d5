/** Page of one agent: what is behind it, how it is, its skills and schemas, and what each protocol carries of it. */

import { link } from "../lib/route.js";
import { count, formatDuration, formatNumber } from "../lib/time.js";
import { agentHealth, behind, lastCheck, slotsText } from "../parts/agent.js";
import { html, useState } from "../parts/html.js";
import { Json } from "../parts/json.js";
import { useChanges } from "../parts/live.js";
import { Page } from "../parts/page.js";
import { LiveMark, Loaded, Loading, ProblemNote, useGet } from "../parts/state.js";
import { Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { RelativeTime } from "../parts/time.js";

/** @param {import("../lib/route.js").Route} route */
export const title = ({ params }) => params.agent;

/** @param {{route: import("../lib/route.js").Route, me: any}} props */
export default function Agent({ route, me }) {
  const name = route.params.agent;
  const load = useGet(`agents/${encodeURIComponent(name)}`);
  const state = useChanges(["agent"], (changes) => (changes === null || changes.some(({ id }) => id === name)) && load.reload());
  const agent = load.value;
  if (!agent) {
    return html`<${Page} title=${name} status=${load.status}>
      ${load.problem ? html`<${ProblemNote} problem=${load.problem} retry=${load.reload} />` : html`<${Loading} rows=${6} />`}<//>`;
  }
  const schemas = Object.entries(agent.schemas ?? {}).filter(([, schema]) => schema);
  return html`<${Page} title=${name} status=${load.problem ? "stale" : "ready"}
      lead=${html`<p><${Status} ...${agentHealth(agent)} /></p><${LiveMark} state=${state} />`}
      actions=${html`<a class="button primary" href=${link(["agents", name, "try"])}>Try</a>
        <a class="button" href=${link(["agents", name, "connect"])}>Connect</a>
        <a class="button" href=${link(["runs"], { agent: name })}>Runs</a>
        <a class="button" href=${link(["threads"], { agent: name })}>Threads</a>
        ${me?.can?.jobs && html`<a class="button" href=${link(["checks"], { agent: name })}>Check</a>`}`}>
    ${load.problem && html`<${ProblemNote} problem=${load.problem} retry=${load.reload} title="Not up to date" />`}
    <p class="words">${agent.description || html`<span class="muted">The agent has no description.</span>`}</p>
    <${Facts} agent=${agent} />
    ${agent.servers?.length > 0 && html`<h2>Servers</h2><${Servers} servers=${agent.servers} />`}
    ${agent.skills?.length > 0 && html`<h2>Skills</h2><${Skills} skills=${agent.skills} name=${name} />`}
    ${schemas.length > 0 && html`<h2>Schemas</h2>${schemas.map(([kind, schema]) => html`<details><summary>${kind}</summary><${Json} value=${schema} label="Schema of the ${kind}" open=${4} /></details>`)}`}
    <h2>What each protocol carries</h2>
    <${Carries} />
  <//>`;
}

/** @param {{agent: any}} props */
function Facts({ agent }) {
  const { last24h, checks = [], because, url, modes, is_default } = agent;
  return html`<dl class="facts" aria-label="Facts">
    <div><dt>Behind</dt><dd>${behind(agent)}${is_default && ", default agent"}</dd></div>
    ${because && html`<div><dt>Recognized by</dt><dd>${because}</dd></div>`}
    ${url && html`<div><dt>URL</dt><dd class="mono">${url}</dd></div>`}
    <div><dt>Slots</dt><dd>${slotsText(agent.slots)}</dd></div>
    ${last24h && html`<div><dt>Last 24 hours</dt><dd>${count(last24h.runs, "run")}, ${last24h.failed ? html`<span class="tone-failed">${formatNumber(last24h.failed)} failed</span>` : "none failed"}</dd></div>`}
    <div><dt>Last check</dt><dd>${lastCheck(agent)}${checks[0]?.at && html`, <${RelativeTime} at=${checks[0].at} />`}</dd></div>
    ${modes && html`<div><dt>Media types</dt><dd>${mediaTypes(modes)}</dd></div>`}
  </dl>`;
}

/** Media types of input and output. @param {any} modes */
function mediaTypes(modes) {
  if (Array.isArray(modes)) return modes.join(", ");
  return Object.entries(modes).map(([side, types]) => html`<div>${side}: ${Array.isArray(types) ? types.join(", ") || "–" : String(types)}</div>`);
}

const SERVER_COLUMNS = [
  { title: "Server", isHead: true, isWide: true, cell: (/** @type {any} */ { url }, index = 0) => (url ? html`<code>${url}</code>` : `server ${index + 1}`) },
  { title: "Circuit breaker", cell: (/** @type {any} */ { state }) => html`<${Status} word=${state} text=${BREAKERS[state] ?? state} />` },
  { title: "Next attempt", cell: (/** @type {any} */ { retry_in_seconds: retry }) => (retry ? `in ${formatDuration(Math.ceil(retry))}` : "–") },
];
/** @type {Record<string, string>} */
const BREAKERS = { closed: "closed: is called", open: "open: not called", half_open: "half-open: one call tests it", "half-open": "half-open: one call tests it" };

/** @param {{servers: any[]}} props */
function Servers({ servers }) {
  const rows = servers.map((server, index) => ({ ...server, url: server.url ?? `server ${index + 1}` }));
  return html`<${Table} label="Servers" columns=${SERVER_COLUMNS} rows=${rows} rowKey=${(/** @type {any} */ { url }) => url} />`;
}

/** @param {{skills: any[], name: string}} props */
function Skills({ skills, name }) {
  return html`<ul class="plain-list">${skills.map((skill) => html`<li><strong>${skill.name ?? skill.id}</strong> ${skill.description}
    ${skill.tags?.length > 0 && html` <span class="muted">${skill.tags.join(", ")}</span>`}
    ${skill.examples?.map((/** @type {string} */ text) => html`<div><a href=${link(["agents", name, "try"], { text })}>${text}</a></div>`)}</li>`)}</ul>`;
}

/** Features by protocol. By default only those that some protocol does not carry whole. */
function Carries() {
  const load = useGet("protocols");
  const [isAll, setAll] = useState(false);
  return html`<${Loaded} load=${load}>${(/** @type {any} */ value) => {
    const protocols = (Array.isArray(value) ? value : value.items).map(newest);
    const features = [...new Set(protocols.flatMap((/** @type {any} */ { carries }) => Object.keys(carries)))];
    const shown = isAll ? features : features.filter((feature) => protocols.some((/** @type {any} */ { carries }) => levelOf(carries[feature]) !== "whole"));
    const columns = [
      { title: "Feature", isHead: true, cell: (/** @type {string} */ feature) => feature.replaceAll("_", " ") },
      ...protocols.map(({ title, carries }) => ({ title, cell: (/** @type {string} */ feature) => html`<${CarryCell} carry=${carries[feature]} />` })),
    ];
    return html`<p><label class="check"><input type="checkbox" checked=${isAll} onChange=${(/** @type {any} */ event) => setAll(event.target.checked)} />
        all ${features.length} features</label> <span class="muted">${features.length - shown.length > 0 && `${features.length - shown.length} that every protocol carries whole are hidden`}</span></p>
      <${Table} label="Features by protocol" columns=${columns} rows=${shown} rowKey=${(/** @type {string} */ feature) => feature} />`;
  }}<//>`;
}

/** The newest version of a protocol. @param {any} protocol */
function newest({ name, title, versions }) {
  const { version, carries } = versions.at(-1) ?? { version: "", carries: {} };
  return { title: `${title ?? name}${versions.length > 1 ? ` ${version}` : ""}`, carries };
}

/** @param {any} carry */
const levelOf = (carry) => carry?.level ?? "none";

/** @param {{carry: any}} props */
function CarryCell({ carry }) {
  const level = levelOf(carry);
  const details = [carry?.how, carry?.source].filter(Boolean).join(" · ");
  return html`<span title=${details}><${Status} word=${level} /></span>${level !== "whole" && carry?.how && html`<div class="meta">${carry.how}</div>`}`;
}
