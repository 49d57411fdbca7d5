/** A run as each protocol shows it: one column for each read request, with the losses where they happen. */

import { cluesOf, explain, findClues } from "../lib/find.js";
import { link } from "../lib/route.js";
import { count, formatDuration } from "../lib/time.js";
import { Copy } from "./copy.js";
import { setQuery } from "./filters.js";
import { html, useMemo } from "./html.js";
import { Json, RawText } from "./json.js";
import { useLook } from "./look.js";
import { curlOf } from "./request-view.js";
import { Loaded, ProblemNote, useGet } from "./state.js";
import { Mark } from "./status.js";
import { Frames, HttpStatus } from "./wire.js";

/** @import { Trace } from "../lib/spans.js" */

/**
 * @param {object} props
 * @param {import("../lib/route.js").Route} props.route `p` names the protocols that are shown, `find` an event.
 * @param {any} props.run
 * @param {Trace} props.trace
 */
export function Seen({ route, run, trace }) {
  const load = useGet(`runs/${encodeURIComponent(run.run_id)}/looks`);
  return html`<${Loaded} load=${load}>${(/** @type {any} */ { items }) => html`
    <${Columns} route=${route} looks=${items} run=${run} trace=${trace} />`}<//>`;
}

/** Return the name by which the address names a look. @param {any} look @param {any[]} looks */
const idOf = (look, looks) => `${look.protocol}-${looks.filter((each) => each.protocol === look.protocol).indexOf(look)}`;

/** @param {{route: any, looks: any[], run: any, trace: Trace}} props */
function Columns({ route, looks, run, trace }) {
  const titles = new Map((useGet("protocols").value ?? []).map((/** @type {any} */ each) => [each.name, each.title]));
  const protocols = [...new Set(looks.map((look) => look.protocol))];
  const chosen = route.query.p ? route.query.p.split(",").filter((/** @type {string} */ name) => protocols.includes(name)) : protocols;
  /** @param {string} name */
  const toggle = (name) => {
    const next = protocols.filter((each) => chosen.includes(each) !== (each === name));
    setQuery(route, { p: next.length === protocols.length || !next.length ? null : next.join() });
  };
  const shown = looks.filter((look) => chosen.includes(look.protocol));
  const all = looks.filter((look) => look.request);
  const readable = shown.filter((look) => look.request);
  const sought = route.query.find ? trace.records[trace.indexOf(Number(route.query.find))] : undefined;
  return html`
    <div class="tools" role="group" aria-label="Protocols">
      ${protocols.map((name) => html`<label key=${name}><input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} /> ${titles.get(name) ?? name}</label>`)}
      <span class="muted">${count(readable.length, "request")}, each as any client sends it</span>
    </div>
    ${sought && html`<p class="banner" role="status">Looking for event ${sought.event_id} <code>${sought.event_type}</code> in each column.${" "}
      <button type="button" class="link" onClick=${() => setQuery(route, { find: null })}>Stop looking</button></p>`}
    <div class="looks">${shown.map((look) => html`<${Column} key=${idOf(look, looks)} look=${look} number=${all.indexOf(look)} run=${run} sought=${sought} />`)}</div>`;
}

/** @param {{look: any, number: number, run: any, sought: any}} props `number`: position among the looks with a request. */
function Column({ look, number, run, sought }) {
  const { title, request, why_not: whyNot } = look;
  return html`<section class="look" aria-label=${title} data-look data-protocol=${look.protocol} data-form=${look.form}>
    <h2>${title}</h2>
    ${request ? html`<${Reading} look=${look} number=${number} run=${run} sought=${sought} />` : html`<p class="muted">${whyNot}</p>`}
  </section>`;
}

/** The response to a look. @param {{look: any, number: number, run: any, sought: any}} props */
function Reading({ look, number, run, sought }) {
  const { answer, problem, isLoading, start, stop } = useLook(look, run);
  const { request } = look;
  return html`
    <p class="exchange-line"><code class="wrap"><strong>${request.method}</strong> ${request.path}</code></p>
    <p class="exchange-line">
      ${answer && html`<${HttpStatus} status=${answer.status} /> <span class="muted">${formatDuration(answer.seconds)}</span>`}
      ${isLoading && html`<span class="muted" role="status">${look.form === "stream" ? "reading the stream…" : "loading…"}</span>`}
      ${isLoading && look.form === "stream" && html`<button type="button" class="small" onClick=${stop}>Stop</button>`}
      <${Copy} label="curl" name="curl command of ${look.title}" text=${() => curlOf(request)} />
      ${!isLoading && html`<button type="button" class="small" onClick=${start}>${answer ? "Read again" : "Read"}</button>`}
      <a class="button small" href=${link(["request"], { run: run.run_id, look: number })}>Edit</a>
    </p>
    ${problem && html`<${ProblemNote} problem=${problem} retry=${start} />`}
    ${answer && html`<${Losses} losses=${answer.losses} form=${look.form} />
      ${sought && html`<${Found} answer=${answer} sought=${sought} />`}
      <${Content} answer=${answer} look=${look} sought=${sought} />`}`;
}

/** What the response does not carry. @param {{losses: {feature: string, how: string}[], form: string}} props */
function Losses({ losses, form }) {
  if (!losses.length) return html`<p class="look-losses"><${Mark} tone="ok" glyph="✓">complete: no losses<//></p>`;
  return html`<details class="look-losses" open><summary><${Mark} tone="loss" glyph="!">${count(losses.length, "loss", "losses")} in this ${form}<//></summary>
    <ul>${losses.map(({ feature, how }) => html`<li class="tone-loss" data-feature=${feature}><strong>lost: ${feature}</strong>${how && `, ${how}`}</li>`)}</ul></details>`;
}

/** @param {{answer: any, sought: any}} props */
function Found({ answer, sought }) {
  const found = useFound(answer, sought);
  if (found) {
    return html`<p class="found" data-found="yes"><${Mark} tone="ok" glyph="✓">found by its ${found.clue.what}<//> at
      ${found.paths.slice(0, 5).map((/** @type {string} */ path) => html` <code>${path}</code>`)}${found.paths.length > 5 && " …"}</p>`;
  }
  const losses = explain(sought, answer.losses);
  return html`<p class="found" data-found="no">${losses.length
    ? html`<${Mark} tone="loss" glyph="!">not here: lost ${losses.map((each) => each.feature).join(", ")}<//>`
    : html`<span class="muted">– no id or text of the event is in this response</span>`}</p>`;
}

/** @param {any} answer @param {any} sought */
function useFound(answer, sought) {
  return useMemo(() => (sought ? findClues(answer.value, cluesOf(sought)) : null), [answer, sought]);
}

/** @param {{answer: any, look: any, sought: any}} props */
function Content({ answer, look, sought }) {
  const found = useFound(answer, sought);
  if (answer.frames) {
    const numbers = (found?.paths ?? []).map((/** @type {string} */ path) => Number(/^\$\[(\d+)\]/.exec(path)?.[1] ?? -1));
    if (!answer.frames.length) return html`<p class="muted">The stream ended without a frame.</p>`;
    return html`<${Frames} frames=${answer.frames} marked=${new Set(numbers)} />`;
  }
  if (answer.isJson) return html`<${Json} value=${answer.value} label=${look.title} open=${3} />`;
  return answer.text ? html`<${RawText} text=${answer.text} label=${look.title} />` : html`<p class="muted">no body</p>`;
}
