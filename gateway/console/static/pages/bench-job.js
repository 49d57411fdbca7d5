/** One bench, alone or beside an earlier one (`?vs`). */

import { get } from "../lib/api.js";
import { count } from "../lib/time.js";
import { BenchReport, percent } from "../parts/bench-report.js";
import { setQuery } from "../parts/filters.js";
import { html } from "../parts/html.js";
import { JobPage } from "../parts/job.js";
import { Matrix } from "../parts/matrix.js";
import { Loaded, useGet, useLoad } from "../parts/state.js";

/** @param {import("../lib/route.js").Route} route */
export const title = (route) => `Bench ${route.params.job.slice(-8)}`;

/** @param {{route: import("../lib/route.js").Route}} props */
export default function BenchJob({ route }) {
  return html`<${JobPage} route=${route} name="Bench">${(/** @type {any} */ job) => html`
    <${Chooser} route=${route} job=${job} />
    ${route.query.vs && html`<${Versus} now=${job.result} id=${route.query.vs} />`}
    <${BenchReport} result=${job.result} />`}<//>`;
}

/** @param {{route: any, job: any}} props */
function Chooser({ route, job }) {
  const load = useGet("jobs", { kind: "bench", limit: 100 });
  const others = (load.value?.items ?? []).filter((/** @type {any} */ each) => each.job !== job.job && each.status === "done");
  if (!others.length && !route.query.vs) return null;
  return html`<div class="filters"><label class="field">Compare with<select value=${route.query.vs ?? ""} onChange=${(/** @type {any} */ event) => setQuery(route, { vs: event.target.value })}>
    <option value="">nothing</option>${others.map((/** @type {any} */ each) => html`<option value=${each.job}>${each.agents.join(", ")}, ${each.created_at.slice(0, 16).replace("T", " ")}</option>`)}
  </select></label></div>`;
}

/** @param {{now: any, id: string}} props */
function Versus({ now, id }) {
  const load = useLoad((signal) => get(`jobs/${encodeURIComponent(id)}`, {}, { signal }), [id]);
  return html`<h2>Compared with another bench</h2><${Loaded} load=${load}>${(/** @type {any} */ { result }) =>
    result ? html`<${Changes} now=${now} before=${result} />` : html`<p class="muted">The other bench has no result.</p>`}<//>`;
}

/** Success rates of the tasks that both benches have unchanged. @param {{now: any, before: any}} props */
function Changes({ now, before }) {
  const hashes = new Map(before.header.tasks.map((/** @type {any} */ each) => [each.name, each.hash]));
  const tasks = now.header.tasks.filter((/** @type {any} */ each) => hashes.get(each.name) === each.hash);
  const changed = now.header.tasks.length - tasks.length;
  const agents = now.agents.map((/** @type {any} */ each) => each.agent).filter((/** @type {string} */ name) => before.agents.some((/** @type {any} */ each) => each.agent === name));
  if (!agents.length) return html`<p class="muted">The two benches have no agent in common.</p>`;
  const rate = (/** @type {any} */ result, /** @type {string} */ agent, /** @type {string} */ task) => result.agents.find((/** @type {any} */ each) => each.agent === agent)?.tasks[task]?.rate ?? null;
  return html`${changed > 0 && html`<p class="muted">${count(changed, "task")} changed or new, and so not compared.</p>`}
    <${Matrix} label="Success rates, other and this bench" corner="Task" rows=${tasks.map((/** @type {any} */ each) => ({ id: each.name, title: each.name }))}
      columns=${agents.map((/** @type {string} */ name) => ({ id: name, title: name }))} cell=${(/** @type {string} */ task, /** @type {string} */ agent) => {
        const [old, next] = [rate(before, agent, task), rate(now, agent, task)];
        if (old === null || next === null) return null;
        const text = old === next ? percent(next) : `${percent(old)} → ${percent(next)}`;
        if (old === next) return { glyph: "=", tone: "muted", word: "unchanged", text };
        return next > old ? { glyph: "▲", tone: "ok", word: "better", text } : { glyph: "▼", tone: "failed", word: "worse", text };
      }} />`;
}
