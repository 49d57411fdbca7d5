/** The routes of the gateway, from its OpenAPI documents. */

import { call } from "../lib/api.js";
import { contentOf, hasMembers, operationsOf, resolve, typeText } from "../lib/openapi.js";
import { link } from "../lib/route.js";
import { count } from "../lib/time.js";
import { setQuery } from "../parts/filters.js";
import { html, useMemo, useState } from "../parts/html.js";
import { Json } from "../parts/json.js";
import { Page } from "../parts/page.js";
import { Empty, Loaded, useGet, useLoad } from "../parts/state.js";

/** Levels of nested schemas that are unfolded at first. */
const OPEN_DEPTH = 1;
/** Levels that are shown at all: schemas may contain themselves. */
const MAX_DEPTH = 8;

export const title = () => "API";

/** @param {{route: import("../lib/route.js").Route}} props `protocol` of the query chooses a document. */
export default function Api({ route }) {
  const { protocol = "" } = route.query;
  const protocols = useGet("protocols").value ?? [];
  const path = protocol ? `/openapi/${encodeURIComponent(protocol)}.json` : "/openapi.json";
  const load = useLoad((signal) => call("GET", path, undefined, { signal }), [path]);
  return html`<${Page} title="API" status=${load.status === "stale" ? "error" : load.status}
    lead=${html`<p>The routes of this gateway, by protocol. The document is at <a href="..${path}"><code>${path}</code></a>.</p>`}>
    <div class="filters"><label class="field">Document<select value=${protocol} onChange=${(/** @type {any} */ event) => setQuery(route, { protocol: event.target.value })}>
      <option value="">everything</option>${protocols.map((/** @type {any} */ each) => html`<option value=${each.name}>${each.title ?? each.name}</option>`)}</select></label></div>
    <${Loaded} load=${load} rows=${10}>${(/** @type {any} */ document) => html`<${Document} key=${path} document=${document} />`}<//>
  <//>`;
}

/** @param {{document: any}} props */
function Document({ document }) {
  const operations = useMemo(() => operationsOf(document), [document]);
  const [words, setWords] = useState("");
  const sought = words.trim().toLowerCase();
  const fitting = operations.filter(({ method, path, summary, description, tag }) => !sought || `${method} ${path} ${summary} ${description} ${tag}`.toLowerCase().includes(sought));
  const tags = [...new Set(fitting.map(({ tag }) => tag))];
  return html`<div class="tools" role="search"><label>filter <input type="search" data-filter value=${words} placeholder="path or words" onInput=${(/** @type {any} */ event) => setWords(event.target.value)} /></label>
      <span class="muted">${document.info?.title} ${document.info?.version}, ${count(fitting.length, "operation")}</span></div>
    ${document.info?.description && html`<p class="words">${document.info.description}</p>`}
    ${fitting.length === 0 && html`<${Empty} text="No operation fits the filter." />`}
    ${tags.map((tag) => html`<section key=${tag}>${tag && html`<h2>${tag}</h2>`}<div class="results">${fitting.filter((each) => each.tag === tag).map(
      (operation) => html`<${Operation} key=${`${operation.method} ${operation.path}`} operation=${operation} document=${document} />`)}</div></section>`)}`;
}

/** @param {{operation: import("../lib/openapi.js").ApiOperation, document: any}} props */
function Operation({ operation: { method, path, summary, description, parameters, body, responses }, document }) {
  const [open, setOpen] = useState(false);
  return html`<details class="result" onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary><code class="method"><strong>${method}</strong> ${path}</code><span>${summary}</span></summary>
    ${open && html`<div class="operation">
      ${description && description !== summary && html`<p class="words">${description}</p>`}
      ${parameters.length > 0 && html`<p class="side-title">Parameters</p><ul class="members">${parameters.map((each) => html`<${Member}
        key=${`${each.in} ${each.name}`} name=${each.name} schema=${each.schema} isRequired=${each.required} note=${each.in} text=${each.description} document=${document} depth=${1} />`)}</ul>`}
      ${body && html`<${Content} title="Request body" content=${contentOf(body)} text=${body.description} document=${document} />`}
      ${responses.map(([status, response]) => html`<${Content} key=${status} title="Response ${status}" content=${contentOf(response)} text=${response?.description} document=${document} />`)}
      <p><a href=${link(["request"])}>Send a request</a></p>
    </div>`}
  </details>`;
}

/** @param {{title: string, content: ReturnType<typeof contentOf>, text?: string, document: any}} props */
function Content({ title, content, text, document }) {
  return html`<p class="side-title">${title}${content && `, ${content.type}`}</p>
    ${text && html`<p class="muted words">${text}</p>`}
    ${content?.schema && html`<${Schema} schema=${content.schema} document=${document} depth=${0} />`}`;
}

/** Members of a schema, which unfold. @param {{schema: any, document: any, depth: number}} props */
function Schema({ schema, document, depth }) {
  const found = resolve(document, schema);
  const members = Object.entries(found?.properties ?? {});
  const choices = found?.anyOf ?? found?.oneOf ?? found?.allOf ?? [];
  const item = found?.type === "array" ? found.items : null;
  if (members.length) {
    return html`<ul class="members">${members.map(([name, member]) => html`<${Member} key=${name} name=${name} schema=${member} isRequired=${found.required?.includes(name)}
      text=${/** @type {any} */ (resolve(document, member))?.description} document=${document} depth=${depth + 1} />`)}</ul>`;
  }
  if (item) return html`<p class="muted">${typeText(found)}</p><${Schema} schema=${item} document=${document} depth=${depth + 1} />`;
  if (choices.length) return html`<ul class="members">${choices.map((/** @type {any} */ each, /** @type {number} */ index) => html`<${Member} key=${index} name="" schema=${each} document=${document} depth=${depth + 1} />`)}</ul>`;
  return found && typeof found === "object" && Object.keys(found).length ? html`<${Json} value=${found} label="Schema" open=${1} />` : html`<p class="muted">${typeText(found)}</p>`;
}

/** @param {{name: string, schema: any, isRequired?: boolean, note?: string, text?: string, document: any, depth: number}} props */
function Member({ name, schema, isRequired = false, note, text, document, depth }) {
  const [open, setOpen] = useState(depth <= OPEN_DEPTH - 1);
  const found = resolve(document, schema);
  const isNested = depth < MAX_DEPTH && hasMembers(document, schema);
  const head = html`${name && html`<code>${name}</code> `}<span class="muted">${typeText(schema)}${note && `, ${note}`}${isRequired && ", required"}${found?.default !== undefined && `, default ${JSON.stringify(found.default)}`}</span> ${text && html`<span class="member-text">${text}</span>`}`;
  if (!isNested) return html`<li>${head}</li>`;
  return html`<li><details open=${open} onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}><summary>${head}</summary>${open && html`<${Schema} schema=${schema} document=${document} depth=${depth} />`}</details></li>`;
}
