/** Playground: a conversation with an agent, with questions, files, tools of the caller, forks and cancels. */

import { shortId } from "../lib/revisions.js";
import { link } from "../lib/route.js";
import { agentHealth } from "../parts/agent.js";
import { announce } from "../parts/announce.js";
import { Chat } from "../parts/chat.js";
import { bodyOf, Composer, newDraft } from "../parts/composer.js";
import { Events } from "../parts/events.js";
import { html, useEffect, useMemo, useState, useStore } from "../parts/html.js";
import { useChanges } from "../parts/live.js";
import { Log } from "../parts/log.js";
import { Page } from "../parts/page.js";
import { RequestView } from "../parts/request-view.js";
import { ForkDialog } from "../parts/revisions.js";
import { Empty, LiveMark, ProblemNote, useGet } from "../parts/state.js";
import { Status } from "../parts/status.js";
import { Tabs } from "../parts/tabs.js";

/** @param {import("../lib/route.js").Route} route */
export const title = ({ params }) => `Try ${params.agent}`;

/** @param {{route: import("../lib/route.js").Route, me: any}} props */
export default function Try({ route, me }) {
  const name = route.params.agent;
  const { thread = null, from = null, text = "" } = route.query;
  const [opened, setOpened] = useState({ thread, from, text, turn: 0 });
  // A link to another thread opens it. The address of a thread that this page has created is no such link.
  useEffect(() => {
    if (thread !== opened.thread || from !== opened.from || text !== opened.text) {
      setOpened(({ turn }) => ({ thread, from, text, turn: turn + 1 }));
    }
  }, [thread, from, text]);
  const restart = () => {
    history.replaceState(null, "", link(["agents", name, "try"]));
    setOpened(({ turn }) => ({ thread: null, from: null, text: "", turn: turn + 1 }));
    announce("new thread");
  };
  return html`<${Playground} key=${opened.turn} name=${name} me=${me} ...${opened} onNew=${restart} />`;
}

/** @param {{name: string, me: any, thread: string | null, from: string | null, text: string, onNew: () => void}} props */
function Playground({ name, me, thread, from: initialFrom, text, onNew }) {
  const agent = useGet(`agents/${encodeURIComponent(name)}`);
  const chat = useMemo(() => new Chat(thread), []);
  const state = useStore(chat.state);
  const [draft, setDraft] = useState(() => newDraft(text));
  const [from, setFrom] = useState(initialFrom);
  const [tab, setTab] = useState("chat");
  const [isForking, setForking] = useState(false);
  useEffect(() => {
    void chat.load();
    return () => chat.close();
  }, [chat]);
  useEffect(() => {
    if (state.threadId && state.threadId !== thread) {
      history.replaceState(null, "", link(["agents", name, "try"], { thread: state.threadId }));
    }
  }, [state.threadId]);
  useChanges(["thread"], (changes) => {
    if (changes === null || changes.some(({ id }) => id === state.threadId)) void chat.refresh();
  });
  const { body, problems } = bodyOf(draft, name, from);
  const turns = chat.conversation.turns;
  const active = turns.find((turn) => turn.endedAt === null);
  const asking = chat.conversation.openQuestions[0]?.turn;
  const send = async () => {
    setTab("chat");
    announce("sending");
    if (!(await chat.send(body))) return;
    setDraft((old) => ({ ...old, text: "", files: [] }));
    setFrom(null);
  };
  const status = pageStatus(agent, state, active);
  const toCancel = active ?? asking;
  const tools = toCancel && html`<button type="button" class="danger" onClick=${() => chat.cancel(toCancel.runId)}
    disabled=${toCancel.status === "cancelling"}>Cancel ${active ? "run" : "task"}</button>`;
  const lead = html`<${ThreadLine} state=${state} active=${active} asking=${asking} chat=${chat} />`;
  const actions = html`<button type="button" onClick=${onNew} disabled=${!turns.length && !state.threadId}>New thread</button>
    <button type="button" onClick=${() => setForking(true)} disabled=${!state.threadId || Boolean(active)}>Fork</button>
    <a class="button" href=${link(["agents", name, "connect"])}>Connect</a>`;
  return html`<${Page} title=${html`Try <a href=${link(["agents", name])}>${name}</a>`} status=${status} lead=${lead} actions=${actions}>
    ${agent.problem && html`<${ProblemNote} problem=${agent.problem} retry=${agent.reload} />`}
    ${agent.value && agentHealth(agent.value).word !== "ok" && html`<div class="banner"><p><${Status} ...${agentHealth(agent.value)} /></p></div>`}
    <${Tabs} label="Views" selected=${tab} onSelect=${setTab}
      tabs=${[{ id: "chat", title: "Chat" }, { id: "events", title: "Events" }, { id: "request", title: "Request" }]}>
      ${tab === "chat" && html`<${Log} chat=${chat} state=${state} agent=${name} empty=${html`<${Empty}
        text=${agent.value?.description || "Send a message to start a thread."}>${skillExamples(agent.value)}<//>`} />`}
      ${tab === "events" && html`<${Events} records=${chat.conversation.records} version=${chat.conversation.version} />`}
      ${tab === "request" && html`<${Requests} body=${body} state=${state} />`}
    <//>
    ${state.problem && html`<${ProblemNote} problem=${state.problem} retry=${state.live === "error" ? () => chat.reconnect() : undefined} />`}
    ${active && state.live === "reconnecting" && html`<div class="banner"><p><${LiveMark} state="reconnecting" /> The connection broke. The page resumes the stream where it stopped.</p></div>`}
    ${from && html`<p class="banner" data-fork=${from}>The next message forks from revision <code title=${from}>${shortId(from)}</code>
      ${" "}<button type="button" class="small" onClick=${() => setFrom(null)}>Do not fork</button></p>`}
    <${Composer} draft=${draft} onChange=${(/** @type {any} */ change) => setDraft((old) => ({ ...old, ...change }))} agent=${agent.value ?? { name }}
      limits=${me?.limits} problems=${problems} isBusy=${state.isSending} onSend=${send} tools=${tools} />
    ${isForking && html`<${ForkDialog} threadId=${state.threadId} onClose=${() => setForking(false)}
      onFork=${(/** @type {string} */ id) => (setFrom(id), setForking(false))} />`}
  <//>`;
}

/** @param {any} agent @param {import("../parts/chat.js").ChatState} state @param {any} active */
function pageStatus(agent, { phase, live, problem }, active) {
  if (active && !problem) return { connecting: "live", live: "live", reconnecting: "reconnecting", paused: "paused", ended: "live", error: "error" }[live];
  if (agent.status === "error" || problem) return "error";
  if (phase === "loading" || agent.status === "loading") return "loading";
  return phase === "empty" ? "empty" : "ready";
}

/** The thread, its state, and how live it is. @param {{state: import("../parts/chat.js").ChatState, active: any, asking: any, chat: Chat}} props */
function ThreadLine({ state, active, asking, chat }) {
  if (!state.threadId) return html`<p>new thread</p>`;
  const word = active ? (active.startedAt ? "running" : "pending") : asking ? "paused" : "idle";
  return html`<p>thread <a href=${link(["threads", state.threadId])}><code title=${state.threadId}>${shortId(state.threadId)}</code></a></p>
    <${Status} word=${word} text=${word === "paused" ? "asks" : word} />
    ${active && html`<${LiveMark} state=${state.live} retry=${() => chat.reconnect()} />`}`;
}

/** @param {any} agent */
function skillExamples(agent) {
  const examples = (agent?.skills ?? []).flatMap((/** @type {any} */ skill) => skill.examples ?? []).slice(0, 3);
  return examples.length > 0 ? html`For example: ${examples.map((/** @type {string} */ each) => html`<q>${each}</q> `)}` : null;
}

/** @param {{body: any, state: import("../parts/chat.js").ChatState}} props */
function Requests({ body, state }) {
  const path = state.threadId ? `/v1/threads/${state.threadId}/runs` : "/v1/runs";
  return html`<${RequestView} title="Next request" request=${{ method: "POST", path, body: { ...body, background: true } }}>
      <p class="muted">The request that Send makes from the message and options below. It returns the run, and the page then follows the run's stream.</p><//>
    ${state.request && html`<${RequestView} title="Last request" request=${state.request} />`}`;
}
