/** Sends the request of a look, and reads the response as it arrives. */

import { openExchange } from "../lib/api.js";
import { joinLosses, parseLosses } from "../lib/losses.js";
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { asProblem } from "./state.js";
import { dataOf, parse } from "./wire.js";

/** Requests that are open at the same time. A browser has six connections per host, and one belongs to the stream. */
const MAX_OPEN = 3;
/** Milliseconds after which the stream of a run that goes on is closed. */
const LIVE_READ = 5000;
/** Most characters of a response that are read. Chosen. */
const MAX_LENGTH = 16_000_000;

const waiting = /** @type {(() => void)[]} */ ([]);
let open = 0;

/**
 * @typedef {object} Answer
 * @property {number} status
 * @property {number} seconds
 * @property {[string, string][]} headers
 * @property {string} text
 * @property {{seconds: number, text: string}[] | null} frames Frames, if the response is a stream.
 * @property {unknown} value The JSON value, or those of the frames.
 * @property {boolean} isJson
 * @property {{feature: string, how: string}[]} losses
 */

/**
 * Read a look when it is shown. Streams of runs that go on are read for five seconds.
 *
 * @param {any} look
 * @param {{ended_at: string | null}} run
 */
export function useLook(look, run) {
  const [state, setState] = useState({ answer: /** @type {Answer | null} */ (null), problem: /** @type {any} */ (null), isLoading: false });
  const controller = useRef(/** @type {AbortController | null} */ (null));
  const start = useCallback(async () => {
    controller.current?.abort();
    const own = new AbortController();
    controller.current = own;
    setState((old) => ({ ...old, problem: null, isLoading: true }));
    const timer = look.form === "stream" && !run.ended_at && setTimeout(() => own.abort(), LIVE_READ);
    try {
      const answer = await queued(own.signal, () =>
        send(look.request, { signal: own.signal, onProgress: (part) => setState((old) => ({ ...old, answer: { ...part, losses: look.losses ?? [] } })) }),
      );
      if (controller.current !== own) return;
      setState({ answer: { ...answer, losses: joinLosses(lossesOf(answer), look.losses ?? []) }, problem: null, isLoading: false });
    } catch (error) {
      if (controller.current === own) setState((old) => ({ ...old, problem: own.signal.aborted ? null : asProblem(error), isLoading: false }));
    }
    clearTimeout(timer || undefined);
  }, [look, run.ended_at]);
  useEffect(() => {
    void start();
    return () => {
      const own = controller.current;
      controller.current = null;
      own?.abort();
    };
  }, [start]);
  return { ...state, start: () => void start(), stop: () => controller.current?.abort() };
}

/** @param {Answer} answer */
const lossesOf = ({ headers }) => parseLosses(headers.find(([name]) => name.toLowerCase() === "babelgate-loss")?.[1]);

/** Run an action when fewer than MAX_OPEN others run. @template T @param {AbortSignal} signal @param {() => Promise<T>} action */
async function queued(signal, action) {
  if (open >= MAX_OPEN) await new Promise((resolve) => waiting.push(() => resolve(undefined)));
  open += 1;
  try {
    signal.throwIfAborted();
    return await action();
  } finally {
    open -= 1;
    waiting.shift()?.();
  }
}

/**
 * Send a request of a protocol, and read the response: frames of a stream, or a body.
 *
 * @param {{method: string, path: string, headers?: Record<string, string> | null, body?: unknown}} request
 * @param {{signal: AbortSignal, onProgress?: (answer: any) => void}} options
 * @returns {Promise<Answer>}
 */
export async function send({ method, path, headers, body }, { signal, onProgress }) {
  const began = performance.now();
  const elapsed = () => (performance.now() - began) / 1000;
  const content = body === null || body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body);
  const type = content === undefined || hasType(headers) ? {} : { "content-type": "application/json" };
  const response = await openExchange(method, path, { headers: { ...type, ...headers }, body: content, signal });
  const isStream = (response.headers.get("content-type") ?? "").startsWith("text/event-stream");
  const head = { status: response.status, headers: /** @type {[string, string][]} */ ([...response.headers]) };
  if (!isStream) {
    const text = await response.text();
    const value = parse(text);
    return { ...head, seconds: elapsed(), text, frames: null, value, isJson: value !== undefined };
  }
  /** @type {{seconds: number, text: string}[]} */
  const frames = [];
  const result = () => ({ ...head, seconds: elapsed(), text: "", frames, value: frames.map(({ text }) => dataOf(text)), isJson: false });
  let shown = 0;
  try {
    for await (const text of readFrames(response)) {
      frames.push({ seconds: elapsed(), text });
      if (onProgress && performance.now() - shown > 250) {
        shown = performance.now();
        onProgress({ ...result(), frames: [...frames] });
      }
    }
  } catch (error) {
    if (!signal.aborted) throw error; // A stream that the reader stops keeps its frames.
  }
  return result();
}

/** @param {Record<string, string> | null | undefined} headers */
const hasType = (headers) => Object.keys(headers ?? {}).some((name) => name.toLowerCase() === "content-type");

/** Yield the frames of a stream as they are on the wire. @param {Response} response */
async function* readFrames(response) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    const pieces = (rest + value).split(/\r?\n\r?\n/);
    rest = pieces.pop() ?? "";
    for (const piece of pieces) if (piece.trim() && !isComment(piece)) yield piece;
    if (length > MAX_LENGTH) return void reader.cancel();
  }
  if (rest.trim() && !isComment(rest)) yield rest;
}

/** True for a heartbeat. @param {string} frame */
const isComment = (frame) => frame.split("\n").every((line) => line.startsWith(":"));
