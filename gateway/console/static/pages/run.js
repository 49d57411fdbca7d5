/** One run: its timeline, the run as each protocol shows it, the exchange with its agent's server, and its records. */

import { call, get } from "../lib/api.js";
import { protocolText } from "../lib/protocol.js";
import { shortId } from "../lib/revisions.js";
import { link } from "../lib/route.js";
import { count, formatDuration, formatNumber, parseTime, secondsBetween } from "../lib/time.js";
import { goTo } from "../parts/address.js";
import { announce } from "../parts/announce.js";
import { RowDetails } from "../parts/event.js";
import { exportRun } from "../parts/export.js";
import { html, useCallback, useEffect, useKeys, useState, useTick } from "../parts/html.js";
import { useChanges } from "../parts/live.js";
import { Page } from "../parts/page.js";
import { RawRun } from "../parts/raw.js";
import { Seen } from "../parts/seen.js";
import { asProblem, LiveMark, Loaded, ProblemNote, useGet } from "../parts/state.js";
import { Mark, Status } from "../parts/status.js";
import { Tabs } from "../parts/tabs.js";
import { RelativeTime } from "../parts/time.js";
import { Timeline } from "../parts/timeline.js";
import { useAnswers, useTrace } from "../parts/trace.js";
import { WireTab } from "../parts/wire-tab.js";

/** Statuses of runs that have not ended. */
const ACTIVE = new Set(["pending", "queued", "running", "cancelling"]);

/** @param {import("../lib/route.js").Route} route */
export const title = (route) => `Run ${shortId(route.params.run)}`;

/** @param {{route: import("../lib/route.js").Route, me: any}} props */
export default function RunPage({ route, me }) {
  const id = route.params.run;
  const load = useGet(`runs/${encodeURIComponent(id)}`);
  const [fold, setFold] = useState(true);
  const followed = useTrace(id, fold);
  const run = load.value;
  useAnswers(followed, run);
  const hasEnded = followed.trace.ended;
  useEffect(() => {
    if (!hasEnded || !run || !ACTIVE.has(run.status)) return;
    announce("done");
    load.reload();
  }, [hasEnded]);
  useChanges(["run", "thread"], (changes) => {
    if (!changes || changes.some((each) => each.id === id || each.id === run?.thread_id)) load.reload();
  });
  const view = route.query.view ?? "timeline";
  const tabs = [
    { id: "timeline", title: "Timeline" },
    { id: "seen", title: "As seen by" },
    { id: "wire", title: "Wire" },
    { id: "raw", title: "Raw" },
  ];
  return html`<${Page}
    title=${html`Run <code>${shortId(id)}</code>`}
    status=${pageStatus(load, followed)}
    lead=${run && html`<${Summary} run=${run} followed=${followed} />`}
    actions=${run && html`<${Actions} run=${run} me=${me} onChanged=${load.reload} />`}
  >
    <${Loaded} load=${load}>${() => html`
      ${run.fault && html`<p class="tone-failed words" role="status">✕ <code>${run.fault.code}</code> ${run.fault.message}</p>`}
      <${Asks} run=${run} />
      <${Tabs} label="Views of the run" tabs=${tabs} selected=${view} onSelect=${(/** @type {string} */ next) => goTo(route, { view: next === "timeline" ? null : next })}>
        ${view === "timeline" && html`<${TimelineTab} route=${route} followed=${followed} fold=${fold} setFold=${setFold} />`}
        ${view === "seen" && html`<${Seen} route=${route} run=${run} trace=${followed.trace} me=${me} />`}
        ${view === "wire" && html`<${WireTab} route=${route} runId=${id} />`}
        ${view === "raw" && html`<${RawRun} run=${run} followed=${followed} />`}
      <//>`}<//>
  <//>`;
}

/** @param {any} load @param {any} followed */
function pageStatus(load, followed) {
  if (load.value === null) return load.status;
  if (load.status === "stale") return "stale";
  const { state } = followed;
  return { loading: "loading", connecting: "loading", failed: "error", error: "error", ended: "ready" }[/** @type {string} */ (state)] ?? state;
}

/** Who ran, how it went, how long it took, and how long it waited. @param {{run: any, followed: any}} props */
function Summary({ run, followed }) {
  const isActive = ACTIVE.has(run.status) && !followed.trace.ended;
  const now = useTick(isActive ? 1 : 60);
  const seconds = isActive ? (now - (parseTime(run.started_at ?? run.created_at) ?? now)) / 1000 : secondsBetween(run.started_at ?? run.created_at, run.ended_at);
  const losses = run.losses?.length ?? 0;
  return html`<ul class="run-facts" aria-label="Summary">
    <li><a href=${link(["agents", run.agent])}>${run.agent}</a></li>
    <li><${Status} word=${run.status} /></li>
    <li><strong>${formatDuration(Math.max(seconds ?? Number.NaN, 0))}</strong></li>
    <li>queued ${formatDuration(secondsBetween(run.created_at, run.started_at))}</li>
    <li>first output ${formatDuration(secondsBetween(run.started_at, run.first_output_at))}</li>
    ${run.attempt > 1 && html`<li>${formatNumber(run.attempt)} attempts</li>`}
    ${losses > 0 && html`<li><${Mark} tone="loss" glyph="!">${count(losses, "loss", "losses")}<//></li>`}
    <li>started <${RelativeTime} at=${run.created_at} /> through ${protocolText(run)}</li>
    <li>thread <a href=${link(["threads", run.thread_id])}><code>${shortId(run.thread_id)}</code></a></li>
    ${usageText(run.usage) && html`<li>${usageText(run.usage)}</li>`}
    <li><${LiveMark} state=${markOf(followed.state)} retry=${followed.retry} /></li>
  </ul>`;
}

/** @param {string} state */
const markOf = (state) => (state === "loading" ? "connecting" : state === "failed" ? "error" : state);

/** @param {Record<string, any> | null | undefined} usage */
function usageText(usage) {
  const members = Object.entries(usage ?? {}).filter(([, value]) => typeof value === "number");
  return members.map(([name, value]) => `${formatNumber(value)} ${name.replaceAll("_", " ")}`).join(", ");
}

/** @param {{run: any}} props */
function Asks({ run }) {
  if (!run.asks?.length) return null;
  return html`<ul class="asks">${run.asks.map(
    (/** @type {any} */ ask) => html`<li><${Mark} tone="asks" glyph="?">asks: ${ask.kind}<//> ${ask.message}${" "}
      <a href=${link(["agents", run.agent, "try"], { thread: run.thread_id })}>Answer</a></li>`,
  )}</ul>`;
}

/** @param {{run: any, me: any, onChanged: () => void}} props */
function Actions({ run, me, onChanged }) {
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState("");
  /** @param {string} name @param {() => Promise<unknown>} action */
  const perform = async (name, action) => {
    setBusy(name);
    setProblem(null);
    try {
      await action();
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy("");
  };
  const fork = async () => {
    const { items } = await get(`threads/${run.thread_id}/revisions`, { limit: 100 });
    const revision = items.filter((/** @type {any} */ each) => each.run_id === run.run_id).at(-1);
    location.hash = link(["agents", run.agent, "try"], { thread: run.thread_id, from: revision?.checkpoint_id });
  };
  return html`
    ${ACTIVE.has(run.status) && html`<button type="button" disabled=${busy !== ""} onClick=${() => perform("cancel", () => call("POST", `/v1/runs/${run.run_id}/cancel`).then(onChanged))}>Cancel run</button>`}
    <button type="button" disabled=${busy !== ""} onClick=${() => perform("fork", fork)}>Fork</button>
    <a class="button" href=${link(["compare"], { a: run.run_id })}>Compare</a>
    <button type="button" disabled=${busy !== ""} onClick=${() => perform("export", () => exportRun(run, me))}>${busy === "export" ? "Exporting…" : "Export"}</button>
    ${problem && html`<${ProblemNote} problem=${problem} />`}`;
}

/** @param {{route: any, followed: any, fold: boolean, setFold: (fold: boolean) => void}} props */
function TimelineTab({ route, followed, fold, setFold }) {
  const { trace, version, problem, retry } = followed;
  const [filter, setFilter] = useState("");
  const [failures, setFailures] = useState(false);
  const [isFollowing, setFollowing] = useState(false);
  const [selected, setSelected] = useState({ trace, row: /** @type {number | null} */ (null) });
  const setRow = useCallback((/** @type {number | null} */ next) => setSelected({ trace, row: next }), [trace]);
  // Rows are numbered within a trace; the unfolded one has others.
  const row = selected.trace === trace ? selected.row : null;
  const at = route.query.at ? Number(route.query.at) : null;
  const leave = useCallback(() => setFollowing(false), []);
  useKeys({ f: () => setFollowing((old) => !old) });
  return html`<div class="timeline-tab">
    <div class="tools" role="group" aria-label="Rows">
      <label>filter <input type="search" data-filter value=${filter} onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} placeholder="type, name or text" /></label>
      <label><input type="checkbox" checked=${fold} onChange=${() => setFold(!fold)} /> fold tokens</label>
      <label><input type="checkbox" checked=${failures} onChange=${() => setFailures(!failures)} /> failures only</label>
      <button type="button" class="small" aria-pressed=${String(isFollowing)} onClick=${() => setFollowing(!isFollowing)} title="Keep the newest event visible (f)">Follow</button>
      <span class="muted">${count(trace.events, "event")}</span>
    </div>
    ${problem && html`<${ProblemNote} problem=${problem} retry=${retry} title="The events are not complete" />`}
    ${trace.spans.length > 0 && html`<div class="timeline-panes">
      <${Timeline} key=${trace.records[0]?.event_id} trace=${trace} version=${version} view=${{ fold, filter, failures }} at=${at}
        follow=${isFollowing} onLeaveEnd=${leave} onSelect=${setRow} />
      <aside class="details" aria-label="Selected event"><${RowDetails} trace=${trace} row=${row} fold=${fold} route=${route} /></aside>
    </div>`}
  </div>`;
}
