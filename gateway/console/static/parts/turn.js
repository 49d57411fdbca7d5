/** One turn of a conversation: the caller's messages, and everything that the agent did in the run. */

import { link } from "../lib/route.js";
import { count, formatDuration, secondsBetween } from "../lib/time.js";
import { safeHref } from "../lib/markdown.js";
import { File } from "./file.js";
import { html, useMemo, useTick } from "./html.js";
import { Json } from "./json.js";
import { Markdown } from "./markdown.js";
import { Question } from "./question.js";
import { Mark, Status } from "./status.js";
import { Clock } from "./time.js";

/** @typedef {import("../lib/conversation.js").Turn} TurnData */
/** @typedef {import("../lib/conversation.js").Item} Item */

/**
 * A turn.
 *
 * @param {object} props
 * @param {TurnData} props.turn
 * @param {string} [props.agent]
 * @param {Item[]} props.open Open questions of the thread.
 * @param {(question: {run_id: string, interrupt_id: string}, answer: any) => Promise<boolean>} props.onAnswer
 * @param {any} [props.footer] Shown beside the status.
 */
export function Turn({ turn, agent, open, onAnswer, footer }) {
  const items = turn.items.map(
    (item) => html`<${ItemView} key=${`${item.type}-${item.id}`} item=${item} version=${item.version} turn=${turn} agent=${agent}
      position=${positionOf(item, turn)} isFirstOpen=${open[0] === item} onAnswer=${onAnswer} isEnded=${turn.endedAt !== null} />`,
  );
  // The answer is shown with its question.
  const inputs = turn.cause === "answer" ? [] : turn.inputs;
  return html`<article class="turn" aria-label=${turn.cause === "answer" ? "Continued after an answer" : "Turn"} data-run=${turn.runId} data-run-status=${turn.status}>
    ${inputs.map((message) => html`<${Row} who=${message.role === "user" ? "you" : message.role} at=${turn.createdAt} key=${message.message_id}>
      <${Parts} parts=${message.parts} agent=${agent} isPlain /><//>`)}
    ${turn.data !== null && html`<${Row} who="you" at=${turn.createdAt}><${Json} value=${turn.data} label="Input" /><//>`}
    ${items}
    ${turn.output !== null && html`<${Row} who="output">${isShown(turn)
      ? html`<p class="muted">the data above, as structured output</p>`
      : html`<${Json} value=${turn.output} label="Output" open=${3} />`}<//>`}
    ${turn.fault && html`<${Row} who="failed"><p class="words"><strong>${turn.fault.message}</strong></p><p class="muted"><code>${turn.fault.code}</code></p><//>`}
    <${TurnFoot} turn=${turn} footer=${footer} version=${turn.version} />
  </article>`;
}

/** True if a message of the turn has the structured output as its data. @param {TurnData} turn */
function isShown({ items, output }) {
  const text = JSON.stringify(output);
  return items.some(({ type, of }) => type === "message" && of.parts.some((/** @type {any} */ part) => part?.kind === "data" && JSON.stringify(part.data) === text));
}

/** "1 of 2" if the turn asks several questions at once. @param {Item} item @param {TurnData} turn */
function positionOf(item, turn) {
  if (item.type !== "question") return "";
  const all = turn.items.filter(({ type }) => type === "question");
  return all.length > 1 ? `${all.indexOf(item) + 1} of ${all.length}` : "";
}

/** @param {{turn: TurnData, footer: any, version: number}} props */
function TurnFoot({ turn, footer }) {
  const losses = turn.items.filter(({ type }) => type === "loss").length;
  return html`<p class="turn-foot meta">
    <${Status} word=${turn.status} /> ${turn.startedAt && html`<${Elapsed} from=${turn.startedAt} to=${turn.endedAt} />, `}
    ${count(turn.count, "event")}${turn.attempt > 1 && `, attempt ${turn.attempt}`}
    ${losses > 0 && html`, <${Mark} tone="loss" glyph="!">${count(losses, "loss", "losses")} in the agent's output<//>`}
    ${footer} <a href=${link(["runs", turn.runId])}>Run page</a>
  </p>`;
}

/** The duration of a run, which grows while it is active. @param {{from: string, to: string | null}} props */
export function Elapsed({ from, to }) {
  const now = useTick(to ? 3600 : 0.5);
  return html`<span>${formatDuration(secondsBetween(from, to ?? new Date(now).toISOString()))}</span>`;
}

/** A row: who, when, and what. @param {{who: string, at?: string | null, tone?: string, children?: any}} props */
export function Row({ who, at, children }) {
  return html`<div class="row" data-who=${who}>
    <div class="row-who"><span class="who-name ${who === "failed" && "tone-failed"}">${who}</span>${at && html` <span class="meta"><${Clock} at=${at} /></span>`}</div>
    <div class="row-content">${children}</div>
  </div>`;
}

/**
 * An item. It renders again only if its version changes, so that a token costs one message and not the whole page.
 *
 * @param {{item: Item, version: number, turn: TurnData, agent?: string, position: string, isFirstOpen: boolean, isEnded: boolean, onAnswer: any}} props
 */
function ItemView(props) {
  const { item, version, position, isFirstOpen, isEnded } = props;
  return useMemo(() => renderItem(props), [item, version, position, isFirstOpen, isEnded]);
}

/** @param {any} props @returns {any} */
function renderItem({ item, turn, agent, position, isFirstOpen, isEnded, onAnswer }) {
  const of = item.of;
  switch (item.type) {
    case "message":
      return html`<${Row} who=${of.phase === "progress" ? "progress" : of.role} at=${item.at}>
        ${of.name && html`<p class="meta">${of.name}</p>`}
        <${Parts} parts=${of.parts} agent=${agent} isPlain=${of.role === "user"} />
        ${of.finish === "length" && html`<p class="tone-loss">! cut off at the maximum length</p>`}<//>`;
    case "tool":
    case "step":
      return html`<${Row} who=${item.type}><${Activity} item=${item} isEnded=${isEnded} /><//>`;
    case "file":
      return html`<${Row} who="file" at=${item.at}>${of.description && html`<p>${of.description}</p>`}
        <${Parts} parts=${of.parts} agent=${agent} name=${of.name} isPlain /><//>`;
    case "question":
      return html`<${Row} who="asks"><${Question} id=${item.id} kind=${of.kind} message=${of.message} value=${of.value} schema=${of.schema}
        at=${item.at} answer=${of.answer} position=${position} canDecline=${isFirstOpen}
        onAnswer=${(/** @type {any} */ answer) => onAnswer({ run_id: turn.runId, interrupt_id: item.id }, answer)} /><//>`;
    case "loss":
      return html`<${Row} who="loss"><p><span class="tone-loss">! lost: ${of.feature}</span> ${of.how}</p><//>`;
    default:
      return html`<${Row} who="custom"><details><summary>${of.name || "value"}</summary><${Json} value=${of.value} label=${of.name || "value"} /></details><//>`;
  }
}

/** A tool or a step: its name, how long, how it ended; more on demand. @param {{item: Item, isEnded: boolean}} props */
function Activity({ item, isEnded }) {
  const { name, input, output, update, fault } = item.of;
  const word = fault ? "failed" : item.endedAt ? "done" : isEnded ? "cancelled" : "running";
  const result = item.type === "tool" ? output : update;
  return html`<details open=${Boolean(fault)}>
    <summary><span class="mono">${name}</span> ${item.endedAt && html`<span class="muted">${formatDuration(secondsBetween(item.at, item.endedAt))}</span> `}<${Status} word=${word} /></summary>
    ${fault && html`<p class="tone-failed words">${fault.message}</p>`}
    ${input !== null && input !== undefined && html`<h4>Input</h4><${Json} value=${input} label="Input of ${name}" />`}
    ${result !== null && result !== undefined && html`<h4>Result</h4><${Json} value=${result} label="Result of ${name}" />`}
  </details>`;
}

/** @param {{parts: any[], agent?: string, name?: string, isPlain?: boolean}} props */
function Parts({ parts, agent, name, isPlain = false }) {
  return parts.map((part, index) => part && html`<${PartView} key=${index} part=${part} agent=${agent} name=${name} isPlain=${isPlain} />`);
}

/** @param {{part: any, agent?: string, name?: string, isPlain: boolean}} props @returns {any} */
function PartView({ part, agent, name, isPlain }) {
  switch (part.kind) {
    case "text":
      if (name) return html`<${File} part=${{ ...part, name, media_type: part.media_type ?? "text/plain" }} agent=${agent} /><pre>${part.text}</pre>`;
      return isPlain ? html`<p class="words">${part.text}</p>` : html`<${Markdown} text=${part.text} isOpen=${part.isOpen} />`;
    case "data":
      return html`<${Json} value=${part.data} label="Data" />`;
    case "file":
      return html`<${File} part=${{ ...part, name: part.name ?? name }} agent=${agent} />`;
    case "reasoning":
      return html`<details open=${part.isOpen}><summary class="muted">reasoning</summary><div class="words muted">${part.text}</div></details>`;
    case "refusal":
      return html`<p class="words"><span class="tone-loss">! refused:</span> ${part.text}</p>`;
    case "tool_call":
      return html`<details><summary>calls <span class="mono">${part.name}</span>${part.side === "caller" && " of the caller"}</summary><pre>${part.arguments}</pre></details>`;
    case "tool_result":
      return html`<details><summary>result of a tool${part.error && html`, <span class="tone-failed">failed</span>`}</summary><${Json} value=${part.output} label="Result" /></details>`;
    case "annotation":
      return html`<p class="meta">source: ${safeHref(part.url ?? "") ? html`<a href=${safeHref(part.url)} target="_blank" rel="noopener noreferrer nofollow">${part.title || part.url}</a>` : part.title || part.url || "–"} ${part.description}</p>`;
    default:
      return html`<${Json} value=${part} label=${part.kind} />`;
  }
}
