/** Page of all threads: what they are about, their agents, their status, and the questions that wait. */

import { shortId } from "../lib/revisions.js";
import { link } from "../lib/route.js";
import { formatNumber, secondsBetween, formatDuration } from "../lib/time.js";
import { ChoiceFilter, setQuery, TextFilter } from "../parts/filters.js";
import { html, useMemo, useTick } from "../parts/html.js";
import { ListLead, ListMore, useList } from "../parts/list.js";
import { Page } from "../parts/page.js";
import { Empty, Loaded, useGet } from "../parts/state.js";
import { Mark, Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { RelativeTime } from "../parts/time.js";

export const title = () => "Threads";

const COLUMNS = [
  { title: "Thread", isHead: true, cell: (/** @type {any} */ thread) => html`<a href=${link(["threads", thread.thread_id])}><code title=${thread.thread_id}>${shortId(thread.thread_id)}</code></a>` },
  { title: "First words", isWide: true, cell: (/** @type {any} */ { title }) => (title ? html`“${title}”` : html`<span class="muted">no text</span>`) },
  { title: "Agents", cell: (/** @type {any} */ { agents }) => (agents?.length ? agents.map((/** @type {string} */ name, /** @type {number} */ index) => html`${index > 0 && ", "}<a href=${link(["agents", name])}>${name}</a>`) : "–") },
  { title: "Runs", isNumber: true, cell: (/** @type {any} */ { runs }) => formatNumber(runs) },
  { title: "Status", cell: (/** @type {any} */ { status }) => html`<${Status} word=${status} />` },
  { title: "Waits for", cell: (/** @type {any} */ { asks }) => html`<${Asks} asks=${asks} />` },
  { title: "Changed", cell: (/** @type {any} */ { updated_at }) => html`<${RelativeTime} at=${updated_at} />` },
  { title: "Metadata", isMinor: true, cell: metadataCell },
];

/** @param {{route: import("../lib/route.js").Route}} props */
export default function Threads({ route }) {
  const { q, agent, status, meta } = route.query;
  const query = { q, agent, status, meta: meta?.replace("=", ":") };
  const isFiltered = Boolean(q || agent || status || meta);
  const isFresh = useMemo(() => (/** @type {any} */ change) => !isFiltered || change.agent === agent, [isFiltered, agent]);
  const list = useList("threads", query, { kind: "thread", idOf: ({ thread_id }) => thread_id, isFresh });
  const agents = useGet("agents");
  const names = (agents.value?.items ?? []).map((/** @type {any} */ { name }) => name);
  return html`<${Page} title="Threads" status=${list.status} lead=${html`<${ListLead} list=${list} noun="thread" />`}>
    <div class="filters" role="search">
      <${TextFilter} label="First words" name="q" route=${route} isFirst />
      <${ChoiceFilter} label="Agent" name="agent" route=${route} choices=${names} />
      <${ChoiceFilter} label="Status" name="status" route=${route} choices=${["idle", "busy", "interrupted", "error"]} />
      <${TextFilter} label="Metadata" name="meta" route=${route} placeholder="user=7" />
    </div>
    <${Loaded} load=${list.load} rows=${8}>${() => list.items.length > 0
      ? html`<${Table} label="Threads" columns=${COLUMNS} rows=${list.items} rowKey=${(/** @type {any} */ { thread_id }) => thread_id} /><${ListMore} list=${list} />`
      : isFiltered
        ? html`<${Empty} text="No thread fits the filter."><button type="button" class="link" onClick=${() => setQuery(route, { q: "", agent: "", status: "", meta: "" })}>Show all threads</button><//>`
        : html`<${Empty} text="There are no threads yet.">A thread begins with the first message to an <a href=${link(["agents"])}>agent</a>, in any protocol.<//>`}<//>
  <//>`;
}

/** What a thread waits for, and how long. @param {{asks: any}} props */
function Asks({ asks }) {
  const now = useTick();
  const list = Array.isArray(asks) ? asks : [];
  if (!list.length) return typeof asks === "number" && asks > 0 ? html`<${Mark} tone="asks" glyph="?">${asks}<//>` : "–";
  const [{ kind, raised_at }] = list;
  const waiting = raised_at ? `, ${formatDuration(secondsBetween(raised_at, new Date(now).toISOString()))}` : "";
  return html`<${Mark} tone="asks" glyph="?">${kind === "input" ? "answer" : kind}${list.length > 1 && ` and ${list.length - 1} more`}${waiting}<//>`;
}

/** @param {any} thread */
function metadataCell({ metadata }) {
  const entries = Object.entries(metadata ?? {});
  if (!entries.length) return "–";
  const words = entries.slice(0, 2).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  return html`<span class="mono" title=${JSON.stringify(metadata)}>${words.join(", ").slice(0, 60)}${entries.length > 2 && ", …"}</span>`;
}
