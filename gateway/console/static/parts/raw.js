/** The run and its records as JSON. */

import { html } from "./html.js";
import { Json } from "./json.js";

/** @param {{run: any, followed: any}} props */
export function RawRun({ run, followed }) {
  return html`<h2>Run</h2>
    <${Json} value=${run} label="Run" open=${2} />
    <h2>Records</h2>
    <p class="muted">As <code>GET /v1/runs/${run.run_id}/stream</code> sends them. A record with <code>n</code> joins successive tokens; clear “fold tokens” in the timeline to see each one.</p>
    <${Json} value=${followed.trace.records} label="Records" open=${1} />`;
}
