/** What a page shows before, instead of and beside its content: loading, empty, error, and how live it is. */

import { get, Problem, takeArrived } from "../lib/api.js";
import { link } from "../lib/route.js";
import { html, useCallback, useLayoutEffect, useRef, useState } from "./html.js";

/**
 * @template T
 * @typedef {object} Load
 * @property {"loading" | "ready" | "stale" | "error"} status `stale`: the content is shown, but reloading it failed.
 * @property {T | null} value
 * @property {Problem | null} problem
 * @property {() => void} reload Load again; the content stays meanwhile.
 * @property {(next: T | ((value: T) => T)) => void} set Replace the value.
 */

/**
 * Load a value when a component is shown, and again when the dependencies change.
 *
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} loader
 * @param {unknown[]} dependencies
 * @param {() => T | undefined} [arrived] Returns the first value if it is here already.
 * @returns {Load<T>}
 */
export function useLoad(loader, dependencies, arrived = () => undefined) {
  const [state, setState] = useState(() => {
    const value = arrived();
    return value === undefined ? { status: "loading", value: null, problem: null } : { status: "ready", value, problem: null };
  });
  const [turn, setTurn] = useState(0);
  const shown = useRef(/** @type {unknown[] | null} */ (null));
  // Before the next frame: an effect would send the request after it, and a response that is here would show later.
  useLayoutEffect(() => {
    if (!shown.current && state.value !== null) {
      shown.current = dependencies;
      return undefined;
    }
    const controller = new AbortController();
    const isOther = !shown.current || shown.current.some((each, index) => each !== dependencies[index]);
    if (isOther) setState((old) => ({ ...old, status: old.value === null ? "loading" : "ready", problem: null }));
    shown.current = dependencies;
    loader(controller.signal).then(
      (value) => controller.signal.aborted || setState({ status: "ready", value, problem: null }),
      (problem) => {
        if (controller.signal.aborted) return;
        setState((old) => ({ ...old, status: old.value === null ? "error" : "stale", problem: asProblem(problem) }));
      },
    );
    return () => controller.abort();
  }, [...dependencies, turn]);
  const reload = useCallback(() => setTurn((number) => number + 1), []);
  const set = useCallback((/** @type {any} */ next) => {
    setState((old) => ({ ...old, value: typeof next === "function" ? next(old.value) : next }));
  }, []);
  return /** @type {any} */ ({ ...state, reload, set });
}

/**
 * Load a route of the console's API.
 *
 * @param {string} path
 * @param {Parameters<typeof get>[1]} [query]
 */
export const useGet = (path, query = {}) =>
  useLoad((signal) => get(path, query, { signal }), [path, JSON.stringify(query)], () => takeArrived(path, query));

/** Return any error as a Problem. @param {unknown} error @returns {Problem} */
export function asProblem(error) {
  if (error instanceof Problem) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new Problem({ status: 0, code: "console_error", message: `The console failed: ${message}` });
}

/** What to do about a problem, by its HTTP status or code. @param {Problem} problem */
function remedyOf(problem) {
  switch (problem.status) {
    case 0:
      return problem.code === "unreachable" ? "Start the gateway, or check the network. Then retry." : "";
    case 401:
      return html`<a href=${link(["key"])}>Enter an API key.</a>`;
    case 403:
      return "Your key lacks this right. The operator of the gateway can grant it with a rule in the setting access.";
    case 404:
      return "Not found, or not yours: data of other owners is never shown.";
    case 410:
      return "It was erased, or removed when its retention ended.";
    case 413:
      return "It is too large to show.";
    default:
      return "";
  }
}

/**
 * A failure: the gateway's words first, then the remedy, and Retry.
 *
 * @param {{problem: Problem, retry?: () => void, title?: string}} props
 */
export function ProblemNote({ problem, retry, title }) {
  return html`<div class="problem" role="alert" data-problem=${problem.code}>
    <p><span class="tone-failed" aria-hidden="true">✕</span> <strong>${title ?? "Failed"}</strong> <code>${problem.code}</code></p>
    <p class="words">${problem.message}</p>
    ${problem.errors.length > 0 && html`<ul>
      ${problem.errors.map(({ field, description }) => html`<li><code>${field}</code>: ${description}</li>`)}
    </ul>`}
    ${remedyOf(problem) && html`<p class="muted">${remedyOf(problem)}</p>`}
    ${problem.requestId && html`<p class="muted">Request <code>${problem.requestId}</code></p>`}
    ${retry && html`<button type="button" onClick=${retry}>Retry</button>`}
  </div>`;
}

/** Gray rows, which appear after 150 ms. @param {{rows?: number}} props */
export function Loading({ rows = 5 }) {
  return html`<div class="loading"><span class="visually-hidden">Loading</span>
    ${Array.from({ length: rows }, () => html`<div class="loading-row"></div>`)}
  </div>`;
}

/** An empty page: one sentence, and what fills it. @param {{text: any, children?: any}} props */
export function Empty({ text, children }) {
  return html`<div class="empty"><p>${text}</p>${children && html`<p>${children}</p>`}</div>`;
}

/**
 * Show the value of a load, or its state.
 *
 * @param {{load: Load<any>, rows?: number, children: (value: any) => any}} props
 */
export function Loaded({ load, rows, children }) {
  if (load.value === null && load.problem) return html`<${ProblemNote} problem=${load.problem} retry=${load.reload} />`;
  if (load.value === null) return html`<${Loading} rows=${rows} />`;
  return html`${load.problem && html`<${ProblemNote} problem=${load.problem} retry=${load.reload} title="Not up to date" />`}
  ${children(load.value)}`;
}

/**
 * A component whose module is imported on first use. Other members are those of the component.
 *
 * @param {{name: string, load: () => Promise<any>, [member: string]: any}} props
 */
export function Late({ name, load, ...props }) {
  const module = useLoad(load, [name]);
  return html`<${Loaded} load=${module} rows=${2}>${(/** @type {any} */ value) => html`<${value[name]} ...${props} />`}<//>`;
}

const LIVE_WORDS = {
  connecting: ["…", "connecting", ""],
  live: ["●", "live", "ok"],
  paused: ["‖", "paused", ""],
  reconnecting: ["↻", "reconnecting", "loss"],
  ended: ["■", "ended", ""],
  error: ["✕", "not live", "failed"],
};

/**
 * Whether a page is live, as glyph and word.
 *
 * @param {{state: import("../lib/stream.js").StreamState, retry?: () => void}} props
 */
export function LiveMark({ state, retry }) {
  const [glyph, word, tone] = LIVE_WORDS[state];
  return html`<span class="live-mark ${tone && `tone-${tone}`}" data-live=${state} title=${state === "paused" ? "Continues when you use this tab" : null}>
    <span aria-hidden="true">${glyph}</span> ${word}
    ${state === "error" && retry && html` <button type="button" class="link" onClick=${retry}>Reconnect</button>`}
  </span>`;
}
