/** The turns of a thread, which follow the end while the reader is there. */

import { link } from "../lib/route.js";
import { count } from "../lib/time.js";
import { html, useEffect, useLayoutEffect, useRef } from "./html.js";
import { Loading, useGet } from "./state.js";
import { Mark } from "./status.js";
import { Turn } from "./turn.js";

/** Pixels from the end of the page within which the reader counts as being there. Chosen. */
const NEAR = 80;

const isAtEnd = () => document.documentElement.scrollHeight - innerHeight - scrollY < NEAR;

/**
 * @param {object} props
 * @param {import("./chat.js").Chat} props.chat
 * @param {import("./chat.js").ChatState} props.state
 * @param {string} [props.agent] Name of the agent, for the addresses of files.
 * @param {any} props.empty Shown if there is no turn.
 */
export function Log({ chat, state, agent, empty }) {
  const follows = useRef(true);
  const turns = chat.conversation.turns;
  const active = turns.some((turn) => turn.endedAt === null);
  const open = chat.conversation.openQuestions.map(({ item }) => item);
  const { version } = chat.conversation;
  const shown = useRef({ version, isLoading: true });
  useEffect(() => {
    const update = () => (follows.current = isAtEnd());
    addEventListener("scroll", update, { passive: true });
    return () => removeEventListener("scroll", update);
  }, []);
  useLayoutEffect(() => {
    const hasGrown = shown.current.version !== version && !shown.current.isLoading;
    if (hasGrown && follows.current) scrollTo({ top: document.documentElement.scrollHeight });
    if (shown.current.version !== version) follows.current = isAtEnd();
    shown.current = { version, isLoading: state.phase === "loading" };
  });
  if (state.phase === "loading") return html`<${Loading} rows=${6} />`;
  return html`<div class="log" role="log" aria-live="off" aria-busy=${active ? "true" : "false"} aria-label="Conversation" data-turns=${turns.length}>
    ${state.earlier.length > 0 && html`<p><button type="button" onClick=${() => chat.loadEarlier()}>Show earlier turns (${state.earlier.length} hidden)</button></p>`}
    ${turns.length === 0 && empty}
    ${turns.map((turn) => html`<${Turn} key=${turn.runId} turn=${turn} agent=${agent} open=${open}
      footer=${turn.endedAt && turn === turns.at(-1) && html`<${Losses} runId=${turn.runId} />`}
      onAnswer=${(/** @type {any} */ question, /** @type {any} */ answer) => chat.answer(question, answer)} />`)}
  </div>`;
}

/** What the protocols lose of an ended run: "2 losses in 3 protocols". @param {{runId: string}} props */
function Losses({ runId }) {
  const { value } = useGet(`runs/${encodeURIComponent(runId)}/looks`);
  const looks = (value?.items ?? []).filter((/** @type {any} */ { losses }) => losses?.length > 0);
  if (!looks.length) return null;
  const features = new Set(looks.flatMap((/** @type {any} */ { losses }) => losses.map((/** @type {any} */ { feature }) => feature)));
  const protocols = new Set(looks.map((/** @type {any} */ { protocol, version }) => `${protocol} ${version}`));
  return html`, <a href=${link(["runs", runId], { view: "seen" })}><${Mark} tone="loss" glyph="!">${count(features.size, "loss", "losses")} in ${count(protocols.size, "protocol")}<//></a>`;
}
