/** Any request to any protocol, as it is on the wire: editable, with the frames of the response. A link fills it in, and never sends. */

import { call, gatewayBase, get } from "../lib/api.js";
import { parseCurl } from "../lib/curl.js";
import { parseLosses } from "../lib/losses.js";
import { shortId } from "../lib/revisions.js";
import { link } from "../lib/route.js";
import { formatDuration } from "../lib/time.js";
import { announce } from "../parts/announce.js";
import { Copy } from "../parts/copy.js";
import { ChoiceFilter, setQuery } from "../parts/filters.js";
import { html, useEffect, useKeys, useMemo, useRef, useState } from "../parts/html.js";
import { Json, RawText } from "../parts/json.js";
import { send } from "../parts/look.js";
import { Page } from "../parts/page.js";
import { curlOf } from "../parts/request-view.js";
import { asProblem, Empty, Loaded, ProblemNote, useGet, useLoad } from "../parts/state.js";
import { Mark } from "../parts/status.js";
import { Frames, Headers, HttpStatus, parse } from "../parts/wire.js";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/** @typedef {{name: string, method: string, path: string, headers: Record<string, string>, body: string}} Example */

export const title = () => "Request";

/** @param {{route: import("../lib/route.js").Route}} props `agent` and `protocol` choose an example; `run` and `look` a look. */
export default function RequestPage({ route }) {
  const { agent, run } = route.query;
  const agents = useGet("agents");
  const load = useLoad(() => loadExamples(agent, run), [agent, run]);
  const names = (agents.value?.items ?? []).map((/** @type {any} */ each) => each.name);
  return html`<${Page} title="Request" status=${load.value === null ? load.status : "ready"}
    lead=${html`<p>Sent from this browser to the gateway, as any client sends it${run && html`, to read run <a href=${link(["runs", run], { view: "seen" })}><code>${shortId(run)}</code></a>`}.</p>`}>
    <${Loaded} load=${load}>${(/** @type {Example[]} */ examples) => {
      const chosen = chooseExample(examples, route.query);
      return html`<div class="filters">
          ${!run && html`<${ChoiceFilter} label="Agent" name="agent" route=${route} choices=${names} />`}
          <label class="field">${run ? "Read request" : "Protocol"}<select value=${examples.indexOf(chosen)} onChange=${(/** @type {any} */ event) => setQuery(route, run ? { look: event.target.value } : { protocol: examples[event.target.value].name })}>
            ${examples.map((each, index) => html`<option value=${index}>${each.name}</option>`)}</select></label>
        </div>
        ${chosen ? html`<${Editor} key=${JSON.stringify(chosen)} example=${chosen} />` : html`<${Empty} text="There is no example to begin with." />`}`;
    }}<//>
  <//>`;
}

/** Return the example that the address names. @param {Example[]} examples @param {Record<string, string>} query */
function chooseExample(examples, { protocol = "", look }) {
  if (look) return examples[Number(look)] ?? examples[0];
  const fits = (/** @type {string} */ name) => name.toLowerCase().replaceAll(/[\s-]/g, "").startsWith(protocol.toLowerCase().replaceAll(/[\s-]/g, ""));
  return examples.find(({ name }) => name === protocol) ?? examples.find(({ name }) => protocol && fits(name)) ?? examples[0];
}

/**
 * Return the examples of the gateway's own page, or the looks at a run.
 *
 * @param {string | undefined} agent
 * @param {string | undefined} run
 * @returns {Promise<Example[]>}
 */
async function loadExamples(agent, run) {
  if (run) {
    const { items } = await get(`runs/${encodeURIComponent(run)}/looks`);
    return items
      .filter((/** @type {any} */ look) => look.request)
      .map(({ title, request: { method, path, headers, body } }) => ({ name: title, method, path, headers: headers ?? {}, body: text(body) }));
  }
  const { protocols } = await call("GET", agent ? `/agent/${encodeURIComponent(agent)}/` : "/");
  return protocols.flatMap(({ protocol, example }) => {
    const parsed = parseCurl(example);
    if (!parsed) return [];
    const { method, url, headers, body } = parsed;
    const json = body && !Object.keys(headers).some((name) => name.toLowerCase() === "content-type") ? { "Content-Type": "application/json" } : {};
    return [{ name: protocol, method, path: pathOf(url), headers: { ...json, ...headers }, body: text(parse(body) ?? body) }];
  });
}

/** @param {unknown} body */
const text = (body) => (body === null || body === undefined || body === "" ? "" : typeof body === "string" ? body : JSON.stringify(body, null, 2));

/** Return the path of an example below the gateway. A proxy may have another address than the gateway knows. @param {string} url */
function pathOf(url) {
  const base = gatewayBase();
  if (url.startsWith(base)) return url.slice(base.length) || "/";
  const { pathname, search } = new URL(url);
  return pathname + search;
}

/** @param {{example: Example}} props */
function Editor({ example }) {
  const [method, setMethod] = useState(example.method);
  const [path, setPath] = useState(example.path);
  const [headers, setHeaders] = useState(Object.entries(example.headers).map(([name, value]) => `${name}: ${value}`).join("\n"));
  const [body, setBody] = useState(example.body);
  const [state, setState] = useState({ answer: /** @type {any} */ (null), problem: /** @type {any} */ (null), isBusy: false });
  const controller = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => () => controller.current?.abort(), []);
  const headerMap = useMemo(() => parseHeaders(headers), [headers]);
  const jsonError = useMemo(() => (body.trim() ? errorOf(body) : ""), [body]);
  const request = { method, path: path.startsWith("/") ? path : `/${path}`, headers: headerMap.headers, body: method === "GET" || !body.trim() ? undefined : body };
  const submit = async () => {
    controller.current?.abort();
    const own = new AbortController();
    controller.current = own;
    setState({ answer: null, problem: null, isBusy: true });
    announce("sending");
    try {
      const answer = await send(request, { signal: own.signal, onProgress: (part) => setState((old) => ({ ...old, answer: part })) });
      if (controller.current !== own) return;
      setState({ answer, problem: null, isBusy: false });
      announce(`response ${answer.status}`);
    } catch (error) {
      if (controller.current === own) setState((old) => ({ ...old, problem: own.signal.aborted ? null : asProblem(error), isBusy: false }));
    }
  };
  useKeys({ "ctrl+enter": () => void submit() });
  return html`<div class="columns even">
    <form aria-label="Request" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), void submit())}>
      <div class="request-line">
        <label class="field">Method<select value=${method} onChange=${(/** @type {any} */ event) => setMethod(event.target.value)}>${METHODS.map((each) => html`<option>${each}</option>`)}</select></label>
        <label class="field grow">Path<input class="mono" value=${path} onInput=${(/** @type {any} */ event) => setPath(event.target.value)} required /></label>
      </div>
      <label class="field">Headers, one per line<textarea class="code" rows="3" spellcheck=${false} value=${headers} aria-invalid=${headerMap.error ? "true" : null} onInput=${(/** @type {any} */ event) => setHeaders(event.target.value)}></textarea></label>
      ${headerMap.error && html`<p class="field-error">${headerMap.error}</p>`}
      <label class="field">Body<textarea class="code" rows="14" spellcheck=${false} value=${body} onInput=${(/** @type {any} */ event) => setBody(event.target.value)}></textarea></label>
      <p class="meta" role="status">${jsonError || (body.trim() ? "valid JSON" : "no body")}</p>
      <p class="actions">
        <button type="submit" class="primary" disabled=${Boolean(headerMap.error)}>Send</button>
        ${state.isBusy && html`<button type="button" onClick=${() => controller.current?.abort()}>Stop</button>`}
        <${Copy} text=${() => curlOf({ ...request, body: request.body && (parse(request.body) ?? request.body) })} label="curl" name="curl command" />
        <button type="button" class="small" disabled=${Boolean(jsonError) || !body.trim()} onClick=${() => setBody(JSON.stringify(JSON.parse(body), null, 2))}>Format</button>
        <span class="muted">Ctrl+Enter sends</span>
      </p>
    </form>
    <section aria-label="Response" data-response=${state.answer?.status ?? ""} aria-busy=${state.isBusy ? "true" : "false"}><h2>Response</h2>
      ${state.problem && html`<${ProblemNote} problem=${state.problem} retry=${submit} />`}
      ${state.answer ? html`<${Answer} answer=${state.answer} isBusy=${state.isBusy} />` : !state.problem && html`<p class="muted">${state.isBusy ? "Waiting for the response…" : "Nothing was sent yet."}</p>`}
    </section>
  </div>`;
}

/** Return why a text is not JSON, or "". @param {string} body */
function errorOf(body) {
  try {
    JSON.parse(body);
    return "";
  } catch (error) {
    return `not JSON, sent as it is: ${/** @type {Error} */ (error).message}`;
  }
}

/** @param {string} lines @returns {{headers: Record<string, string>, error: string}} */
function parseHeaders(lines) {
  /** @type {Record<string, string>} */
  const headers = {};
  for (const line of lines.split("\n").filter((each) => each.trim())) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).trim();
    if (colon < 1 || !/^[\w!#$%&'*+.^`|~-]+$/.test(name)) return { headers, error: `expected Name: value, got '${line}'` };
    headers[name] = line.slice(colon + 1).trim();
  }
  return { headers, error: "" };
}

/** @param {{answer: any, isBusy: boolean}} props */
function Answer({ answer, isBusy }) {
  const header = (/** @type {string} */ name) => answer.headers.find((/** @type {[string, string]} */ [each]) => each.toLowerCase() === name)?.[1];
  const losses = parseLosses(header("babelgate-loss"));
  const run = header("babelgate-run");
  return html`<p class="exchange-line"><${HttpStatus} status=${answer.status} /> <span class="muted">${formatDuration(answer.seconds)}${isBusy ? ", reading…" : ""}</span>
      ${run && html`<a href=${link(["runs", run])}>Run <code>${shortId(run)}</code></a>`}</p>
    ${losses.length > 0 && html`<ul class="look-losses">${losses.map(({ feature, how }) => html`<li><${Mark} tone="loss" glyph="!">lost: ${feature}<//>${how && `, ${how}`}</li>`)}</ul>`}
    <${Headers} headers=${answer.headers} />
    ${answer.frames ? html`<${Frames} frames=${answer.frames} />` : answer.isJson ? html`<${Json} value=${answer.value} label="Response body" open=${4} />` : answer.text ? html`<${RawText} text=${answer.text} label="Response body" />` : html`<p class="muted">no body</p>`}`;
}
