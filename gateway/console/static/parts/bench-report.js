/** The result of a bench: agents, tasks, comparisons and attempts. */

import { link } from "../lib/route.js";
import { count, formatDuration, formatNumber } from "../lib/time.js";
import { html, useMemo, useState } from "./html.js";
import { Matrix } from "./matrix.js";
import { IntervalPlot } from "./plot.js";
import { Mark } from "./status.js";
import { Table } from "./table.js";

/** Glyph and tone of each outcome. @type {Record<string, [string, string]>} */
const OUTCOMES = { passed: ["✓", "ok"], failed: ["✕", "failed"], error: ["✕", "failed"], timeout: ["✕", "failed"], limit: ["!", "loss"], unreachable: ["✕", "failed"], skipped: ["–", "muted"], broken: ["!", "loss"] };
/** Differences that are less likely than this are not put down to chance. The bench uses the same level. */
const SIGNIFICANCE = 0.05;
const STEP = 50;

/** @param {number | null | undefined} rate */
export const percent = (rate) => (rate === null || rate === undefined ? "–" : `${Math.round(rate * 100)} %`);

/** @param {{result: any}} props */
export function BenchReport({ result }) {
  const { header, agents, comparisons, attempts } = result;
  return html`
    <p>${header.description} <span class="muted">Suite <code>${header.suite}</code> <code title="Hash of the suite">${header.suite_hash}</code>, ${count(header.tasks.length, "task")}, ${count(attempts.length, "attempt")}, ${formatDuration(result.seconds)}.</span></p>
    ${!result.complete && html`<p class="banner" role="status">The bench is not complete: ${result.stopped}</p>`}
    <h2>Agents</h2>
    <${Table} label="Agents" columns=${AGENT_COLUMNS} rows=${agents} rowKey=${(/** @type {any} */ each) => each.agent} />
    <div class="plots">
      <${IntervalPlot} label="Passed, with the 95% interval" domain=${[0, 1]} format=${percent} rows=${agents.map(rateRow)} />
      <${IntervalPlot} label="Time of an attempt: median, up to p95" format=${(/** @type {number} */ value) => formatDuration(value)} rows=${agents.map((/** @type {any} */ each) => timeRow(each, attempts))} />
    </div>
    <${Comparisons} comparisons=${comparisons} />
    <h2>Tasks</h2>
    <${Matrix} label="Tasks by agent" corner="Task" rows=${header.tasks.map((/** @type {any} */ task) => ({ id: task.name, title: task.name, about: task.description }))}
      columns=${agents.map((/** @type {any} */ each) => ({ id: each.agent, title: each.agent }))} cell=${taskCell(attempts)} />
    <h2>Attempts</h2>
    <${Attempts} attempts=${attempts} agents=${agents.map((/** @type {any} */ each) => each.agent)} />`;
}

/** @type {import("./table.js").Column<any>[]} */
const AGENT_COLUMNS = [
  { title: "Agent", isHead: true, cell: ({ agent }) => html`<a href=${link(["agents", agent])}>${agent}</a>` },
  { title: "Passed", isNumber: true, cell: ({ all }) => `${all.passed} of ${all.attempts}` },
  { title: "95%", isNumber: true, cell: ({ all }) => (all.interval ? `${percent(all.interval.low)} to ${percent(all.interval.high)}` : "–") },
  { title: "Score", isNumber: true, cell: ({ score }) => percent(score) },
  { title: "All k attempts pass", isNumber: true, isMinor: true, cell: ({ all }) => Object.entries(all.pass_k).filter(([k]) => k !== "1").map(([k, rate]) => `${k}: ${percent(/** @type {number} */ (rate))}`).join(", ") || "–" },
  { title: "p50", isNumber: true, cell: ({ all }) => formatDuration(all.times.p50) },
  { title: "p95", isNumber: true, cell: ({ all }) => formatDuration(all.times.p95) },
  { title: "First output", isNumber: true, isMinor: true, cell: ({ all }) => formatDuration(all.times.first_output_p50) },
  { title: "Tokens", isNumber: true, cell: ({ all }) => (all.tokens.total_tokens === undefined ? "–" : formatNumber(all.tokens.total_tokens)) },
  { title: "Cost", isNumber: true, cell: ({ all }) => (all.cost === null || all.cost === undefined ? "–" : all.cost.toPrecision(3)) },
];

/** @param {any} figures */
function rateRow({ agent, all }) {
  const { rate, interval } = all;
  return { label: agent, value: rate, low: interval?.low, high: interval?.high, text: interval ? `${percent(rate)} (${percent(interval.low)}–${percent(interval.high)})` : percent(rate) };
}

/** @param {any} figures @param {any[]} attempts */
function timeRow({ agent, all }, attempts) {
  const points = attempts.filter((each) => each.agent === agent && each.seconds > 0).map((each) => each.seconds);
  const { p50, p95 } = all.times;
  return { label: agent, value: p50, low: p50, high: p95, points: points.slice(0, 500), text: `${formatDuration(p50)}–${formatDuration(p95)}` };
}

/** @param {{comparisons: any[]}} props */
function Comparisons({ comparisons }) {
  if (!comparisons.length) return null;
  return html`<h2>Comparisons</h2><ul>${comparisons.map(({ sentence, p_adjusted: p, test, difference, interval }) => {
    const isChance = p === null || p > SIGNIFICANCE;
    return html`<li>${sentence} ${difference !== 0 && html`<${Mark} tone=${isChance ? "loss" : "ok"} glyph=${isChance ? "?" : "✓"}>${isChance ? "not significant" : "significant"}${p !== null && `, p = ${p.toPrecision(2)}`}<//>`}${" "}
      <span class="muted">${test}${interval && `, difference ${percent(difference)} (${percent(interval.low)} to ${percent(interval.high)})`}</span></li>`;
  })}</ul>`;
}

/** @param {any[]} attempts */
function taskCell(attempts) {
  /** @type {Map<string, any[]>} */
  const byCell = new Map();
  for (const each of attempts) byCell.set(`${each.task}\n${each.agent}`, [...(byCell.get(`${each.task}\n${each.agent}`) ?? []), each]);
  return (/** @type {string} */ task, /** @type {string} */ agent) => {
    const own = byCell.get(`${task}\n${agent}`);
    if (!own) return null;
    const passed = own.filter((each) => each.outcome === "passed").length;
    const judged = own.filter((each) => !["skipped", "broken"].includes(each.outcome)).length;
    const tone = judged === 0 ? "muted" : passed === own.length ? "ok" : passed === 0 ? "failed" : "loss";
    const glyphs = own.length <= 5 ? own.map((each) => OUTCOMES[each.outcome]?.[0] ?? "·").join("") : `${passed} of ${own.length}`;
    const why = own.find((each) => each.why)?.why;
    return { glyph: glyphs, tone, word: `${passed} of ${own.length} passed${why ? `: ${why}` : ""}` };
  };
}

/** @param {{attempts: any[], agents: string[]}} props */
function Attempts({ attempts, agents }) {
  const [agent, setAgent] = useState("");
  const [outcome, setOutcome] = useState("");
  const [shown, setShown] = useState(STEP);
  const outcomes = useMemo(() => [...new Set(attempts.map((each) => each.outcome))].sort(), [attempts]);
  const fitting = attempts.filter((each) => (!agent || each.agent === agent) && (!outcome || each.outcome === outcome));
  return html`<div class="filters">
      <label class="field">Agent<select value=${agent} onChange=${(/** @type {any} */ event) => setAgent(event.target.value)}><option value="">all</option>${agents.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label class="field">Outcome<select value=${outcome} onChange=${(/** @type {any} */ event) => setOutcome(event.target.value)}><option value="">all</option>${outcomes.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
    </div>
    <${Table} label="Attempts" columns=${ATTEMPT_COLUMNS} rows=${fitting.slice(0, shown)} rowKey=${(/** @type {any} */ each) => `${each.agent} ${each.task} ${each.repetition}`} />
    ${shown < fitting.length && html`<button type="button" onClick=${() => setShown(shown + STEP)}>Show ${Math.min(STEP, fitting.length - shown)} more of ${fitting.length}</button>`}`;
}

/** @type {import("./table.js").Column<any>[]} */
const ATTEMPT_COLUMNS = [
  { title: "Task", isHead: true, cell: ({ task, repetition }) => html`${task} <span class="muted">no. ${repetition + 1}</span>` },
  { title: "Agent", cell: ({ agent }) => agent },
  { title: "Outcome", cell: ({ outcome }) => html`<${Mark} tone=${OUTCOMES[outcome]?.[1] ?? "muted"} glyph=${OUTCOMES[outcome]?.[0] ?? "·"}>${outcome}<//>` },
  { title: "Time", isNumber: true, cell: ({ seconds }) => formatDuration(seconds) },
  { title: "Why, or the output", isWide: true, cell: ({ why, outputs }) => why || html`<span class="muted">${outputs.join(" | ").slice(0, 200)}</span>` },
  // The task of Agent Protocol is a thread of the gateway.
  { title: "Thread", cell: ({ task_id: id }) => (id ? html`<a href=${link(["threads", id])}>thread</a>` : "–") },
];
