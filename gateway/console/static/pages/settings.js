/** The settings in force, and where each value comes from. */

import { count } from "../lib/time.js";
import { html, useState } from "../parts/html.js";
import { Page } from "../parts/page.js";
import { Empty, Loaded, useGet } from "../parts/state.js";
import { Table } from "../parts/table.js";

/** Where a value comes from, in words. @type {Record<string, string>} */
const ORIGINS = { flag: "option of the command", variable: "environment variable", file: "configuration file", default: "default" };

export const title = () => "Settings";

export default function Settings() {
  const load = useGet("settings");
  const [words, setWords] = useState("");
  const [origin, setOrigin] = useState("");
  const items = load.value?.items ?? [];
  const sought = words.trim().toLowerCase();
  const fitting = items.filter((/** @type {any} */ each) => {
    const isSet = each.from !== "default";
    return (!origin || (origin === "set" ? isSet : each.from === origin)) && (!sought || `${each.key} ${JSON.stringify(each.value)} ${each.where ?? ""}`.toLowerCase().includes(sought));
  });
  const changed = items.filter((/** @type {any} */ each) => each.from !== "default").length;
  return html`<${Page} title="Settings" status=${load.value && load.problem ? "stale" : load.status}
    lead=${load.value && html`<p>${count(items.length, "value")} in force, ${changed} of them not the default. They are read-only here: change the file, a variable or an option.</p>`}>
    <${Loaded} load=${load} rows=${10}>${() => html`
      <div class="filters" role="search">
        <label class="field">Filter<input type="search" data-filter value=${words} onInput=${(/** @type {any} */ event) => setWords(event.target.value)} /></label>
        <label class="field">From<select value=${origin} onChange=${(/** @type {any} */ event) => setOrigin(event.target.value)}>
          <option value="">anywhere</option><option value="set">not the default</option>${Object.entries(ORIGINS).map(([name, text]) => html`<option value=${name}>${text}</option>`)}</select></label>
      </div>
      ${fitting.length ? html`<${Table} label="Settings" columns=${COLUMNS} rows=${fitting} rowKey=${(/** @type {any} */ each) => each.key} rowClass=${(/** @type {any} */ each) => (each.from === "default" ? "" : "is-set")} />` : html`<${Empty} text="No setting fits the filter." />`}`}<//>
  <//>`;
}

/** @type {import("../parts/table.js").Column<any>[]} */
const COLUMNS = [
  { title: "Setting", isHead: true, cell: ({ key }) => html`<code>${key}</code>` },
  { title: "Value", isWide: true, cell: valueCell },
  { title: "From", cell: ({ from }) => (from === "default" ? html`<span class="muted">default</span>` : (ORIGINS[from] ?? from)) },
  { title: "Where", cell: ({ where }) => (where ? html`<code>${where}</code>` : "") },
];

/** @param {any} setting */
function valueCell({ value, secret }) {
  const hidden = html`<span class="muted">secret, not shown</span>`;
  if (secret && (value === null || value === undefined)) return hidden;
  const shown = value === null || value === undefined ? html`<span class="muted">not set</span>` : html`<code>${typeof value === "string" ? value : JSON.stringify(value)}</code>`;
  return html`${shown}${secret && html` ${hidden}`}`;
}
