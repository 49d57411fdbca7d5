/** One conformance check: its verdicts, and the exchanges behind each. */

import { count, formatDuration } from "../lib/time.js";
import { html, useMemo, useState } from "../parts/html.js";
import { JobPage } from "../parts/job.js";
import { Mark } from "../parts/status.js";
import { ExchangeView } from "../parts/wire.js";

/** Verdicts from worst to best: glyph and tone. @type {Record<string, [string, string]>} */
const VERDICTS = {
  fail: ["✕", "failed"],
  "error of the check": ["✕", "failed"],
  warning: ["!", "loss"],
  "not shown": ["?", "asks"],
  met: ["✓", "ok"],
  "not applicable": ["–", "muted"],
};
const ORDER = Object.keys(VERDICTS);
const BAD = ["fail", "error of the check", "warning"];
/** Results that are shown at once. */
const STEP = 60;

/** @param {import("../lib/route.js").Route} route */
export const title = (route) => `Check ${route.params.job.slice(-8)}`;

/** @param {{route: import("../lib/route.js").Route}} props */
export default function Check({ route }) {
  return html`<${JobPage} route=${route} name="Check">${(/** @type {any} */ job) =>
    reportsOf(job.result).map(({ agent, report }) => html`<${Report} key=${agent} agent=${agent} report=${report} />`)}<//>`;
}

/** Return the reports of a result: one, or one for each agent. @param {any} result */
function reportsOf(result) {
  if (result.sets) return [{ agent: "", report: result }];
  if (Array.isArray(result)) return result.map((report) => ({ agent: report.url, report }));
  return Object.entries(result).map(([agent, report]) => ({ agent, report: /** @type {any} */ (report) }));
}

/** @param {{agent: string, report: any}} props */
function Report({ agent, report }) {
  const refused = Object.entries(report.refused ?? {});
  return html`${agent && html`<h2>${agent}</h2>`}
    ${report.sets.map((/** @type {any} */ set) => html`<${RequirementSet} key=${set.set} set=${set} />`)}
    ${refused.length > 0 && html`<details><summary>${count(refused.length, "protocol")} that the agent does not speak</summary>
      <ul class="words">${refused.map(([name, why]) => html`<li><code>${name}</code>: ${why}</li>`)}</ul></details>`}`;
}

/** @param {{set: any}} props */
function RequirementSet({ set }) {
  const isBad = set.outcome === "not conformant";
  const [verdict, setVerdict] = useState(BAD.some((each) => set.counts[each]) ? "bad" : set.counts["not shown"] ? "not shown" : "all");
  const [words, setWords] = useState("");
  const [shown, setShown] = useState(STEP);
  const fitting = useMemo(() => select(set.results, verdict, words), [set, verdict, words]);
  const choices = [["bad", "violations", BAD.reduce((sum, each) => sum + (set.counts[each] ?? 0), 0)], ...ORDER.filter((each) => set.counts[each]).map((each) => [each, each, set.counts[each]]), ["all", "all", set.results.length]];
  return html`<section class="check-set" aria-label=${set.title}>
    <h2>${set.title}: <${Mark} tone=${isBad ? "failed" : set.conformant ? "ok" : "asks"} glyph=${isBad ? "✕" : set.conformant ? "✓" : "?"}>${set.outcome}<//></h2>
    <p class="words"><strong>${set.passed} of ${set.applicable}</strong> mandatory requirements met, ${formatDuration(set.seconds)}, ${count(set.messages, "message")} validated against their schemas. <span class="muted">${set.because}</span></p>
    ${set.consequences.length > 0 && html`<p class="muted">${count(set.consequences.length, "requirement")} could not be tested, because of a violation above.</p>`}
    <div class="tools" role="group" aria-label="Results of ${set.title}">
      ${choices.map(([id, name, number]) => html`<button type="button" class="small" key=${id} aria-pressed=${String(verdict === id)} onClick=${() => (setVerdict(id), setShown(STEP))}>${name} ${number}</button>`)}
      <label>filter <input type="search" data-filter value=${words} placeholder="id, section or words" onInput=${(/** @type {any} */ event) => setWords(event.target.value)} /></label>
    </div>
    ${fitting.length === 0 && html`<p class="muted">${verdict === "bad" ? "No violation was found." : "No result fits."}</p>`}
    <div class="results">${fitting.slice(0, shown).map((result) => html`<${Result} key=${result.id} result=${result} isOpen=${fitting.length <= 3 && verdict === "bad"} />`)}</div>
    ${shown < fitting.length && html`<button type="button" onClick=${() => setShown(shown + STEP)}>Show ${Math.min(STEP, fitting.length - shown)} more of ${fitting.length}</button>`}
  </section>`;
}

/** Return the results that fit, worst first. @param {any[]} results @param {string} verdict @param {string} words */
function select(results, verdict, words) {
  const sought = words.trim().toLowerCase();
  const fits = (/** @type {any} */ each) =>
    (verdict === "all" || (verdict === "bad" ? BAD.includes(each.verdict) : each.verdict === verdict)) &&
    (!sought || `${each.id} ${each.section} ${each.text} ${each.expected ?? ""}`.toLowerCase().includes(sought));
  return results.filter(fits).sort((one, other) => ORDER.indexOf(one.verdict) - ORDER.indexOf(other.verdict));
}

/** @param {{result: any, isOpen: boolean}} props */
function Result({ result, isOpen }) {
  const [open, setOpen] = useState(isOpen);
  const [glyph, tone] = VERDICTS[result.verdict] ?? ["·", "muted"];
  return html`<details class="result" open=${open} data-verdict=${result.verdict} onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary><span class="tone-${tone}"><span aria-hidden="true">${glyph}</span> ${result.verdict}</span>
      <code>${result.id.split("/").pop()}</code> <span class="muted">${result.level}${result.section && ` ${result.section}`}</span> <span class="result-text">${result.text}</span></summary>
    ${open && html`<${Evidence} result=${result} />`}
  </details>`;
}

/** @param {{result: any}} props */
function Evidence({ result }) {
  const got = result.got === undefined ? null : typeof result.got === "string" ? result.got : JSON.stringify(result.got, null, 2);
  const facts = [
    ["expected", result.expected],
    ["got", got === null ? null : html`<pre>${got}</pre>`],
    ["fix", result.hint],
    ["rerun with", result.trigger && html`<code>--trigger ${result.trigger}=…</code>`],
    ["known", result.known],
    ["specification", /^https?:/.test(result.source) ? html`<a href=${result.source} rel="noreferrer" target="_blank">${result.section || result.source}</a>` : result.section],
  ].filter(([, value]) => value);
  return html`<dl class="evidence">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${result.exchanges.length > 0
      ? result.exchanges.map((/** @type {any} */ exchange) => html`<${ExchangeView} key=${exchange.number} exchange=${exchange} />`)
      : html`<p class="muted">No exchange belongs to this verdict.</p>`}`;
}
