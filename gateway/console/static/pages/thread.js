/** Page of one thread: its turns, state, revisions, files and metadata. Open questions can be answered. */

import { shortId } from "../lib/revisions.js";
import { call } from "../lib/api.js";
import { link } from "../lib/route.js";
import { isObject } from "../lib/schema.js";
import { count } from "../lib/time.js";
import { Chat } from "../parts/chat.js";
import { Copy } from "../parts/copy.js";
import { File } from "../parts/file.js";
import { JsonField } from "../parts/form.js";
import { html, useEffect, useMemo, useState, useStore } from "../parts/html.js";
import { Json } from "../parts/json.js";
import { useChanges } from "../parts/live.js";
import { Log } from "../parts/log.js";
import { Page } from "../parts/page.js";
import { Question } from "../parts/question.js";
import { Revisions } from "../parts/revisions.js";
import { asProblem, Empty, LiveMark, Loaded, Loading, ProblemNote, useGet } from "../parts/state.js";
import { Status } from "../parts/status.js";
import { Tabs } from "../parts/tabs.js";
import { Clock, RelativeTime } from "../parts/time.js";

/** @param {import("../lib/route.js").Route} route */
export const title = ({ params }) => `Thread ${shortId(params.thread)}`;

/** @param {{route: import("../lib/route.js").Route}} props */
export default function Thread({ route }) {
  const id = route.params.thread;
  const load = useGet(`threads/${encodeURIComponent(id)}`);
  const chat = useMemo(() => new Chat(id), []);
  const state = useStore(chat.state);
  const [tab, setTab] = useState(route.query.view ?? "turns");
  useEffect(() => {
    void chat.load();
    return () => chat.close();
  }, [chat]);
  const live = useChanges(["thread"], (changes) => {
    if (changes !== null && !changes.some((change) => change.id === id)) return;
    load.reload();
    void chat.refresh();
  });
  const thread = load.value;
  if (!thread) {
    return html`<${Page} title="Thread ${shortId(id)}" status=${load.status}>
      ${load.problem ? html`<${ProblemNote} problem=${load.problem} retry=${load.reload} />` : html`<${Loading} rows=${6} />`}<//>`;
  }
  const active = chat.conversation.turns.find((turn) => turn.endedAt === null);
  const agent = thread.agents?.at(-1);
  const status = state.phase === "loading" ? "loading" : load.problem ? "stale" : state.problem ? "error" : active ? (state.live === "reconnecting" ? "reconnecting" : "live") : "ready";
  const tabs = [
    { id: "turns", title: "Turns" },
    { id: "state", title: "State" },
    { id: "revisions", title: "Revisions" },
    { id: "files", title: html`Files${thread.files?.length > 0 && ` ${thread.files.length}`}` },
    { id: "metadata", title: "Metadata" },
  ];
  return html`<${Page} title=${thread.title ? `“${thread.title}”` : `Thread ${shortId(id)}`} status=${status}
      lead=${html`<${Lead} thread=${thread} live=${active ? state.live : live} chat=${chat} />`}
      actions=${agent && html`<a class="button primary" href=${link(["agents", agent, "try"], { thread: id })}>Continue with ${agent}</a>`}>
    ${load.problem && html`<${ProblemNote} problem=${load.problem} retry=${load.reload} title="Not up to date" />`}
    ${state.problem && html`<${ProblemNote} problem=${state.problem} retry=${() => (state.live === "error" ? chat.reconnect() : chat.load())} />`}
    <${Tabs} label="Views" tabs=${tabs} selected=${tab} onSelect=${setTab}>
      ${tab === "turns" && html`<${HiddenQuestions} thread=${thread} chat=${chat} />
        <${Log} chat=${chat} state=${state} agent=${agent} empty=${html`<${Empty} text="The thread has no turns." />`} />`}
      ${tab === "state" && html`<${State} thread=${thread} isBusy=${Boolean(active)} onChange=${load.reload} />`}
      ${tab === "revisions" && html`<${RevisionsTab} id=${id} agent=${agent} updated=${thread.updated_at} />`}
      ${tab === "files" && html`<${Files} files=${thread.files ?? []} agent=${agent} />`}
      ${tab === "metadata" && html`<${Json} value=${thread.metadata ?? {}} label="Metadata" />`}
    <//>
  <//>`;
}

/** @param {{thread: any, live: any, chat: Chat}} props */
function Lead({ thread, live, chat }) {
  return html`<p><${Status} word=${thread.status} /></p>
    <p>${count(thread.runs ?? thread.run_ids?.length ?? 0, "run")}${thread.agents?.length > 0 && html` of ${thread.agents.map(
      (/** @type {string} */ name, /** @type {number} */ index) => html`${index > 0 && ", "}<a href=${link(["agents", name])}>${name}</a>`)}`}</p>
    <p>created <${Clock} at=${thread.created_at} />, changed <${RelativeTime} at=${thread.updated_at} /></p>
    <p><code>${thread.thread_id}</code> <${Copy} text=${thread.thread_id} name="thread id" /></p>
    <${LiveMark} state=${live} retry=${() => chat.reconnect()} />`;
}

/** Open questions of turns that are not shown. @param {{thread: any, chat: Chat}} props */
function HiddenQuestions({ thread, chat }) {
  const shown = new Set(chat.conversation.turns.flatMap(({ items }) => items.map(({ id }) => id)));
  const hidden = chat.state.value.phase === "ready" ? (thread.open ?? []).filter((/** @type {any} */ { interrupt_id }) => !shown.has(interrupt_id)) : [];
  return hidden.map((/** @type {any} */ each) => html`<${Question} key=${each.interrupt_id} id=${each.interrupt_id} kind=${each.kind} message=${each.message} value=${each.value}
    schema=${each.schema} at=${each.raised_at} answer=${null} onAnswer=${(/** @type {any} */ answer) => chat.answer(each, answer)} />`);
}

/** The newest state, which can be edited while no run is active. @param {{thread: any, isBusy: boolean, onChange: () => void}} props */
function State({ thread, isBusy, onChange }) {
  const [edited, setEdited] = useState(/** @type {{value: any} | null} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const { messages, ...values } = thread.values ?? {};
  const save = async () => {
    try {
      await call("PATCH", `/v1/threads/${thread.thread_id}`, { metadata: thread.metadata, values: edited?.value });
      setEdited(null);
      setProblem(null);
      onChange();
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  if (edited) {
    return html`<p class="muted">Saving creates a new revision. Each member replaces the member with the same name; members that you delete here stay. Messages stay unchanged.</p>
      <${JsonField} field=${STATE_FIELD} value=${edited.value} path="" errors=${new Map()} onChange=${(/** @type {any} */ value) => setEdited({ value })} />
      ${problem && html`<${ProblemNote} problem=${problem} />`}
      <div class="actions"><button type="button" class="primary" onClick=${save} disabled=${!isObject(edited.value)}>Save as a revision</button>
        <button type="button" onClick=${() => setEdited(null)}>Discard</button></div>`;
  }
  return html`<p class="actions"><button type="button" onClick=${() => setEdited({ value: values })} disabled=${isBusy}>Edit the state</button>
      ${thread.checkpoint_id && html`<span class="muted">revision <code>${shortId(thread.checkpoint_id)}</code>${thread.next?.length > 0 && `, next ${thread.next.join(", ")}`}</span>`}</p>
    ${thread.why_no_values
      ? html`<${Empty} text=${thread.why_no_values} />`
      : thread.values && Object.keys(thread.values).length > 0
        ? html`<${Json} value=${thread.values} label="State" />`
        : html`<${Empty} text="The thread has no state. The first run saves one." />`}`;
}

const STATE_FIELD = { kind: "json", title: "State", description: "", isRequired: true, isNullable: false, schema: {} };

/** @param {{id: string, agent?: string, updated: string}} props */
function RevisionsTab({ id, agent, updated }) {
  const load = useGet(`threads/${id}/revisions`, { limit: 100 });
  useEffect(() => {
    if (load.value) load.reload();
  }, [updated]);
  return html`<${Loaded} load=${load}>${(/** @type {any} */ { items, next }) => items.length === 0
    ? html`<${Empty} text="The thread has no revision yet. The first run saves one." />`
    : html`<p class="muted">${count(items.length, "revision")}${next && ", the newest ones"}. A fork starts a run from the state of a revision, as a branch of the thread.</p>
      <${Revisions} items=${items} action=${(/** @type {any} */ revision) => html`
        ${revision.run_id && html`<a href=${link(["runs", revision.run_id])}>Run</a>`}
        ${agent && html`<a href=${link(["agents", agent, "try"], { thread: id, from: revision.checkpoint_id })} aria-label="Fork from ${shortId(revision.checkpoint_id)}">Fork</a>`}`} />`}<//>`;
}

/** @param {{files: any[], agent?: string}} props */
function Files({ files, agent }) {
  if (!files.length) return html`<${Empty} text="The thread has no files. Callers send them with messages, and agents return them." />`;
  return html`<ul class="plain-list" aria-label="Files">${files.map((file) => html`<li>
    <${File} part=${file} agent=${agent} />${file.run_id && html`<a href=${link(["runs", file.run_id])}>Run</a>`}</li>`)}</ul>`;
}
