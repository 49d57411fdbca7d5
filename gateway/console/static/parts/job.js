/** One job: its state, what can be done with it, and its result. */

import { change, consoleUrl, request } from "../lib/api.js";
import { link } from "../lib/route.js";
import { formatDuration, secondsBetween } from "../lib/time.js";
import { announce } from "./announce.js";
import { Confirm } from "./dialog.js";
import { download } from "./export.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { PAGE_OF, Progress, Summary } from "./jobs.js";
import { useChanges } from "./live.js";
import { Page } from "./page.js";
import { asProblem, Empty, Loaded, ProblemNote, useGet } from "./state.js";
import { Status } from "./status.js";
import { RelativeTime } from "./time.js";

const ACTIVE = new Set(["waiting", "running"]);
/** Milliseconds between two looks for the result of a job that is done, and the most of them. */
const RELOAD = 500;
const MAX_RELOADS = 10;
/** The JSON of the result is here already. */
const LOADED = "report.json";

/**
 * @param {object} props
 * @param {import("../lib/route.js").Route} props.route
 * @param {string} props.name Name of the kind, such as "Check".
 * @param {(job: any) => any} props.children Shows the result.
 */
export function JobPage({ route, name, children }) {
  const load = useGet(`jobs/${encodeURIComponent(route.params.job)}`);
  const job = load.value;
  const reloads = useRef(0);
  const live = useChanges(["job"], (changes) => {
    if (!changes || changes.some((each) => each.id === route.params.job)) load.reload();
  });
  useEffect(() => {
    if (job && !ACTIVE.has(job.status)) announce(`${name} ${job.status}`);
  }, [job?.status]);
  useEffect(() => {
    // The gateway reports the end before it has measured the files of the result.
    if (job?.status !== "done" || job.result || reloads.current >= MAX_RELOADS) return undefined;
    reloads.current += 1;
    const timer = setTimeout(load.reload, RELOAD);
    return () => clearTimeout(timer);
  }, [job]);
  const isActive = job && ACTIVE.has(job.status);
  const status = load.value === null ? load.status : load.problem ? "stale" : isActive ? (live === "live" ? "live" : "ready") : job.status === "failed" ? "error" : "ready";
  const title = job ? html`${name} of ${job.agents.join(", ")}` : name;
  return html`<${Page} title=${title} status=${status} lead=${job && html`<${Lead} job=${job} />`} actions=${job && html`<${Actions} job=${job} />`}>
    <${Loaded} load=${load}>${() => html`
      ${job.error && html`<p class="tone-failed words" role="status">✕ ${typeof job.error === "string" ? job.error : job.error.message}</p>`}
      ${isActive && html`<p role="status">${job.status === "waiting" ? "Waiting: one job runs at a time." : job.progress?.text ? html`<${Progress} progress=${job.progress} />` : "Running."}</p>`}
      ${job.result ? children(job) : !isActive && html`<${Empty} text="This job has no result." />`}`}<//>
  <//>`;
}

/** @param {{job: any}} props */
function Lead({ job }) {
  const options = Object.entries({ ...(job.protocol ? { protocol: job.protocol } : {}), ...(job.at === "server" ? { at: "its own server" } : {}), ...job.options });
  return html`<ul class="run-facts" aria-label="Summary">
    <li><${Status} word=${job.status} /></li>
    ${job.summary && html`<li><${Summary} summary=${job.summary} /></li>`}
    <li>${formatDuration(secondsBetween(job.started_at, job.ended_at))}</li>
    <li>started <${RelativeTime} at=${job.started_at ?? job.created_at} />${job.created_by && ` by ${job.created_by}`}</li>
    ${options.map(([key, value]) => html`<li><code>${key}=${typeof value === "object" ? JSON.stringify(value) : String(value)}</code></li>`)}
  </ul>`;
}

/** @param {{job: any}} props */
function Actions({ job }) {
  const [state, setState] = useState({ busy: "", problem: /** @type {any} */ (null), isAsking: false });
  /** @param {string} busy @param {() => Promise<unknown>} action */
  const perform = async (busy, action) => {
    setState({ busy, problem: null, isAsking: false });
    try {
      await action();
      setState({ busy: "", problem: null, isAsking: false });
    } catch (error) {
      setState({ busy: "", problem: asProblem(error), isAsking: false });
    }
  };
  const path = `jobs/${encodeURIComponent(job.job)}`;
  const again = async () => {
    const { kind, agents, at, protocol, options } = job;
    const next = await change("POST", "jobs", { kind, agents, at, ...(protocol ? { protocol } : {}), options });
    location.hash = link([PAGE_OF[kind], next.job]);
  };
  const save = async (/** @type {string} */ file) => download(`${job.kind}-${job.job}-${file}`, await (await request(consoleUrl(`${path}/${file}`), { headers: { accept: "*/*" } })).text());
  const isActive = ACTIVE.has(job.status);
  const remove = () => perform("remove", async () => {
    await change("DELETE", path);
    if (!isActive) location.hash = link([PAGE_OF[job.kind]]);
  });
  return html`
    ${!isActive && html`<button type="button" disabled=${state.busy !== ""} onClick=${() => perform("again", again)}>Run again</button>`}
    ${job.result && html`<button type="button" onClick=${() => download(`${job.kind}-${job.job}.json`, JSON.stringify(job.result, null, 2))}>JSON</button>`}
    ${Object.keys(job.files ?? {}).filter((file) => file !== LOADED).map((/** @type {string} */ file) => html`<button type="button" disabled=${state.busy !== ""} onClick=${() => perform(file, () => save(file))}>${file}</button>`)}
    <button type="button" class=${isActive ? "" : "danger"} disabled=${state.busy !== ""} onClick=${() => (isActive ? remove() : setState({ ...state, isAsking: true }))}>${isActive ? "Cancel" : "Remove"}</button>
    ${state.isAsking && html`<${Confirm} title="Remove this job?" text="Its result and its evidence are deleted." action="Remove" onConfirm=${remove} onClose=${() => setState((old) => ({ ...old, isAsking: false }))} />`}
    ${state.problem && html`<${ProblemNote} problem=${state.problem} />`}`;
}
