/** The exchanges between the gateway and the server of a run's agent. */

import { get } from "../lib/api.js";
import { formatBytes, formatDuration } from "../lib/time.js";
import { setQuery } from "./filters.js";
import { html } from "./html.js";
import { Empty, Loaded, useGet, useLoad } from "./state.js";
import { Table } from "./table.js";
import { Clock } from "./time.js";
import { ExchangeView, HttpStatus } from "./wire.js";

const MODES = {
  off: "The setting console.wire is off: no exchange is recorded.",
  failures: "The setting console.wire is failures: only exchanges of failed runs are kept.",
  all: "All exchanges are kept in memory, as long as there is room.",
};

/** @param {{route: import("../lib/route.js").Route, runId: string}} props `x` of the query is the number of an exchange. */
export function WireTab({ route, runId }) {
  const load = useGet(`runs/${encodeURIComponent(runId)}/exchanges`);
  return html`<${Loaded} load=${load}>${(/** @type {any} */ { items, mode, why_empty: why }) =>
    items.length
      ? html`<${List} route=${route} runId=${runId} items=${items} mode=${mode} />`
      : html`<${Empty} text=${why ?? "No exchange of this run is recorded."}>${/** @type {any} */ (MODES)[mode]}<//>`}<//>`;
}

/** @param {{route: any, runId: string, items: any[], mode: string}} props */
function List({ route, runId, items, mode }) {
  const chosen = Number(route.query.x ?? items.find((each) => each.failed)?.number ?? items[0].number);
  const columns = [
    { title: "Exchange", isHead: true, cell: (/** @type {any} */ row) => html`<button type="button" class="small" aria-pressed=${String(row.number === chosen)} onClick=${() => setQuery(route, { x: row.number })}>${row.number}</button>` },
    { title: "At", cell: (/** @type {any} */ row) => html`<${Clock} at=${row.at} milliseconds />` },
    { title: "Request", isWide: true, cell: (/** @type {any} */ row) => html`<code>${row.method} ${row.url}</code>` },
    { title: "Response", cell: (/** @type {any} */ row) => html`<${HttpStatus} status=${row.status} />${row.streamed && html` <span class="muted">stream</span>`}` },
    { title: "Time", isNumber: true, cell: (/** @type {any} */ row) => formatDuration(row.seconds) },
    { title: "Sent", isNumber: true, isMinor: true, cell: (/** @type {any} */ row) => formatBytes(row.request_bytes) },
    { title: "Received", isNumber: true, isMinor: true, cell: (/** @type {any} */ row) => formatBytes(row.response_bytes) },
  ];
  return html`<p class="muted">Between the gateway and the agent's server. Values of secret headers are not recorded. ${/** @type {any} */ (MODES)[mode]}</p>
    <${Table} label="Exchanges" columns=${columns} rows=${items} rowKey=${(/** @type {any} */ row) => String(row.number)} rowClass=${(/** @type {any} */ row) => (row.number === chosen ? "is-current" : "")} />
    <${One} runId=${runId} number=${chosen} />`;
}

/** @param {{runId: string, number: number}} props */
function One({ runId, number }) {
  const path = `runs/${encodeURIComponent(runId)}/exchanges/${number}`;
  const load = useLoad((signal) => get(path, {}, { signal }), [path]);
  return html`<${Loaded} load=${load}>${(/** @type {any} */ exchange) => html`<${ExchangeView} key=${number} exchange=${exchange} />`}<//>`;
}
