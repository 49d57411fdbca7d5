/** Page of one agent: what is behind it, how it is, its skills and schemas, and what each protocol carries of it. */

import { link } from "../lib/route.js";
import { count, formatDuration, formatNumber } from "../lib/time.js";
import { agentHealth, behind, lastCheck, slotsText, useProtocolTitles } from "../parts/agent.js";
import { html } from "../parts/html.js";
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
  const protocols = useProtocolTitles();
  return html`<dl class="facts" aria-label="Facts">
    <div><dt>Backend</dt><dd>${behind(agent, protocols)}${is_default && ", default agent"}</dd></div>
    ${because && html`<div><dt>Detected by</dt><dd>${because}</dd></div>`}
    ${url && html`<div><dt>URL</dt><dd class="mono">${url}</dd></div>`}
    <div><dt>Slots</dt><dd>${slotsText(agent.slots)}</dd></div>
    ${last24h && html`<div><dt>Last 24 hours</dt><dd>${last24h.is_partial && "more than "}${count(last24h.runs, "run")}, ${last24h.failed ? html`<span class="tone-failed">${formatNumber(last24h.failed)} failed</span>` : "none failed"}</dd></div>`}
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
const BREAKERS = { ok: "closed", failing: "closed, but the last call failed", open: "open: not called", probing: "half-open: one call tests it" };

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

/** How much of a run each protocol carries, and on demand what it loses and how. */
function Carries() {
  const load = useGet("protocols");
  return html`<${Loaded} load=${load}>${(/** @type {any} */ value) => html`<ul class="plain-list" aria-label="Protocols">
    ${(Array.isArray(value) ? value : value.items).flatMap((/** @type {any} */ { name, title, versions }) =>
      versions.map((/** @type {any} */ { version, carries }) => html`<li key=${`${name} ${version}`}><${Carried} title="${title ?? name} ${version}" carries=${carries} /></li>`))}
  </ul>`}<//>`;
}

/** @param {{title: string, carries: Record<string, {level: string, how: string, source: string}>}} props */
function Carried({ title, carries }) {
  const entries = Object.entries(carries);
  /** @param {string} wanted */
  const withLevel = (wanted) => entries.filter(([, { level }]) => level === wanted);
  const [losses, none] = [withLevel("loss"), withLevel("none")];
  const head = html`<strong>${title}</strong> <${Status} word="whole" text="${withLevel("whole").length} of ${count(entries.length, "feature")} whole" />`;
  if (!losses.length && !none.length) return html`<p>${head}</p>`;
  return html`<details>
    <summary>${head}${losses.length > 0 && html`, <${Status} word="loss" text="${losses.length} with a loss" />`}${none.length > 0 && html`, <${Status} word="none" text="${none.length} not at all" />`}</summary>
    <dl class="carried">${[...losses, ...none].map(([feature, { level, how, source }]) => html`<div>
      <dt><${Status} word=${level} text=${feature} /></dt><dd>${how || (level === "none" ? "not carried" : "")}${source && html`<div class="meta">${source}</div>`}</dd></div>`)}</dl>
  </details>`;
}
