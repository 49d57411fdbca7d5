/** Jobs of one kind: the list, and the form that starts one. */

import { change } from "../lib/api.js";
import { link } from "../lib/route.js";
import { count, formatDuration, secondsBetween } from "../lib/time.js";
import { html, useState } from "./html.js";
import { ListLead, ListMore, useList } from "./list.js";
import { Page } from "./page.js";
import { asProblem, Empty, Loaded, ProblemNote, useGet } from "./state.js";
import { Mark, Status } from "./status.js";
import { Table } from "./table.js";
import { RelativeTime } from "./time.js";

/** Pages of each kind of job. @type {Record<string, string>} */
export const PAGE_OF = { check: "checks", across: "across", bench: "bench" };

/**
 * @typedef {object} JobOption
 * @property {string} name Member of the job's options.
 * @property {string} label
 * @property {"text" | "number" | "select" | "words" | "inputs"} type `words` become a list, `inputs` an object of lines
 *   `behaviour=text`.
 * @property {string} [value]
 * @property {string} [hint]
 * @property {[string, string][]} [choices]
 */

/**
 * Page of the jobs of one kind.
 *
 * @param {object} props
 * @param {import("../lib/route.js").Route} props.route `agent` of the query is chosen in the form.
 * @param {any} props.me
 * @param {"check" | "across" | "bench"} props.kind
 * @param {string} props.title
 * @param {string} props.about What such a job does.
 * @param {JobOption[]} props.options
 * @param {boolean} [props.isMulti] Several agents take part.
 */
export function JobsPage({ route, me, kind, title, about, options, isMulti = false }) {
  const list = useList("jobs", { kind }, { kind: "job", idOf: ({ job }) => job });
  const mayStart = me?.can?.jobs !== false;
  return html`<${Page} title=${title} status=${list.status} lead=${html`<${ListLead} list=${list} noun="job" />`}>
    <p>${about}</p>
    ${mayStart ? html`<${StartForm} route=${route} kind=${kind} options=${options} isMulti=${isMulti} />` : html`<p class="muted">Only operators start jobs.</p>`}
    <${Loaded} load=${list.load}>${() => list.items.length
      ? html`<${Table} label=${title} columns=${COLUMNS} rows=${list.items} rowKey=${(/** @type {any} */ { job }) => job} /><${ListMore} list=${list} />`
      : html`<${Empty} text="No ${kind} has run yet.">Choose an agent above, or run <code>babelgate ${kind === "across" ? "check --across" : kind}</code>.<//>`}<//>
  <//>`;
}

/** @type {import("./table.js").Column<any>[]} */
const COLUMNS = [
  { title: "Agents", isHead: true, cell: (job) => html`<a href=${link([PAGE_OF[job.kind], job.job])}>${job.agents.join(", ")}</a>` },
  { title: "Status", cell: (job) => html`<${Status} word=${job.status} />` },
  { title: "Result", isWide: true, cell: resultCell },
  { title: "Started", cell: (job) => html`<${RelativeTime} at=${job.started_at ?? job.created_at} />` },
  { title: "Took", isNumber: true, cell: (job) => formatDuration(secondsBetween(job.started_at, job.ended_at)) },
  { title: "By", isMinor: true, cell: (job) => job.created_by ?? "–" },
];

/** @param {any} job */
function resultCell({ error, summary, progress, status }) {
  if (error) return html`<span class="tone-failed">${typeof error === "string" ? error : error.message}</span>`;
  if (status === "running" && progress) return html`<${Progress} progress=${progress} />`;
  return html`<${Summary} summary=${summary} />`;
}

/** Tone and glyph of the outcomes of a check. @type {Record<string, [string, string]>} */
const OUTCOMES = { conformant: ["ok", "✓"], "no violation found": ["asks", "?"], "not conformant": ["failed", "✕"] };

/** The most important figures of a result. @param {{summary: any}} props */
export function Summary({ summary }) {
  if (!summary) return null;
  if (summary.sets) {
    return summary.sets.map((/** @type {any} */ each) => {
      const [tone, glyph] = OUTCOMES[each.outcome] ?? ["muted", "·"];
      return html`<div><${Mark} tone=${tone} glyph=${glyph}>${each.title}: ${each.outcome}<//>, ${each.passed} of ${each.total}${each.warnings > 0 && `, ${count(each.warnings, "warning")}`}</div>`;
    });
  }
  if ("same" in summary) {
    const { same, protocols, scenarios, findings } = summary;
    return html`<${Mark} tone=${same ? "ok" : "failed"} glyph=${same ? "✓" : "✕"}>${same ? "all protocols agree" : "the protocols disagree"}<//>, ${count(scenarios, "scenario")} in ${count(protocols, "protocol")}, ${count(findings, "difference")}`;
  }
  if (summary.agents) {
    const figures = summary.agents.map((/** @type {any} */ each) => `${each.agent} ${each.passed} of ${each.attempts}`);
    return html`passed: ${figures.join(", ")}${!summary.complete && html` <${Mark} tone="loss" glyph="!">not complete<//>`}`;
  }
  return String(summary.outcome ?? summary);
}

/** @param {{progress: {done: number, total: number | null, text: string}}} props */
export function Progress({ progress: { done, total, text } }) {
  return html`<span class="job-progress">${total && html`<progress max=${total} value=${done} aria-label="Progress"></progress> ${done} of ${total} `}<span class="muted">${text}</span></span>`;
}

/** Members of an order that are not among its options. */
const HEAD = new Set(["protocol", "at"]);

/** Return the order for a job. @param {string} kind @param {string[]} agents @param {JobOption[]} options @param {Record<string, string>} values */
function orderOf(kind, agents, options, values) {
  /** @type {Record<string, any>} */
  const order = { kind, agents, options: {} };
  for (const { name, type } of options) {
    const text = values[name].trim();
    if (text) (HEAD.has(name) ? order : order.options)[name] = read(type, text);
  }
  return order;
}

/** @param {JobOption["type"]} type @param {string} text */
function read(type, text) {
  if (type === "number") return Number(text);
  if (type === "words") return text.split(/[\s,]+/);
  if (type !== "inputs") return text;
  const lines = text.split("\n").filter((line) => line.includes("="));
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]));
}

/** @param {{route: any, kind: string, options: JobOption[], isMulti: boolean}} props */
function StartForm({ route, kind, options, isMulti }) {
  const load = useGet("agents");
  const [chosen, setChosen] = useState(/** @type {string[]} */ (route.query.agent ? route.query.agent.split(",") : []));
  const [values, setValues] = useState(/** @type {Record<string, string>} */ (Object.fromEntries(options.map(({ name, value = "" }) => [name, value]))));
  const [state, setState] = useState({ isBusy: false, problem: /** @type {any} */ (null) });
  /** @param {Event} event */
  const start = async (event) => {
    event.preventDefault();
    setState({ isBusy: true, problem: null });
    try {
      const { job } = await change("POST", "jobs", orderOf(kind, chosen, options, values));
      location.hash = link([PAGE_OF[kind], job]);
    } catch (error) {
      setState({ isBusy: false, problem: asProblem(error) });
    }
  };
  const toggle = (/** @type {string} */ name) => setChosen(!isMulti ? [name] : chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]);
  return html`<form class="job-form" onSubmit=${start} aria-label="Start a ${kind}">
    <${Loaded} load=${load} rows=${1}>${(/** @type {any} */ { items }) => html`<fieldset><legend>${isMulti ? "Agents" : "Agent"}</legend>
      ${items.map((/** @type {any} */ { name }) => html`<label class="check" key=${name}><input type=${isMulti ? "checkbox" : "radio"} name="agent" checked=${chosen.includes(name)}
        onChange=${() => toggle(name)} /> ${name}</label>`)}</fieldset>`}<//>
    <div class="filters">${options.map((option) => html`<${Option} key=${option.name} option=${option} value=${values[option.name]}
      onChange=${(/** @type {string} */ value) => setValues({ ...values, [option.name]: value })} />`)}
      <button type="submit" class="primary" disabled=${state.isBusy || !chosen.length}>Run ${kind}</button>
      <span class="muted">${chosen.length ? "" : `Choose ${isMulti ? "at least one agent" : "an agent"}.`}</span>
    </div>
    ${state.problem && html`<${ProblemNote} problem=${state.problem} title="Not started" />`}
  </form>`;
}

/** @param {{option: JobOption, value: string, onChange: (value: string) => void}} props */
function Option({ option: { label, type, hint, choices = [] }, value, onChange }) {
  const handle = (/** @type {any} */ event) => onChange(event.target.value);
  if (type === "select") {
    return html`<label class="field">${label}<select value=${value} onChange=${handle}>${choices.map(([each, words]) => html`<option value=${each}>${words}</option>`)}</select></label>`;
  }
  if (type === "inputs") return html`<label class="field">${label}<textarea class="code" rows="2" value=${value} placeholder=${hint ?? ""} onInput=${handle}></textarea></label>`;
  return html`<label class="field">${label}<input type=${type === "number" ? "number" : "text"} value=${value} min=${type === "number" ? 1 : null} placeholder=${hint ?? ""} onInput=${handle} /></label>`;
}
