/** A run as one file: the run, its records, the responses to its looks, and its exchanges. */

import { get } from "../lib/api.js";
import { unfold } from "../lib/log.js";
import { send } from "./look.js";
import { asProblem } from "./state.js";

const PAGE = 1000;

/**
 * Collect everything that the gateway shows of a run, and download it as JSON. Throws Problem.
 *
 * @param {any} run
 * @param {any} me
 */
export async function exportRun(run, me) {
  const path = `runs/${encodeURIComponent(run.run_id)}`;
  const content = {
    format: "babelgate-run",
    gateway: { version: me.version, instance: me.instance },
    exported_at: new Date().toISOString(),
    run: await get(path),
    records: await allRecords(path),
    looks: await allLooks(path, run),
    exchanges: await allExchanges(path),
  };
  download(`run-${run.run_id}.json`, JSON.stringify(content, null, 2));
}

/** Each event is a record of the file, although the gateway sends the deltas of a part together. @param {string} path */
async function allRecords(path) {
  const records = [];
  let next = 0;
  while (next !== null) {
    const page = await get(`${path}/records`, { fold: 1, deltas: 1, limit: PAGE, after: next });
    for (const record of unfold(page.records)) records.push(record);
    next = page.next;
  }
  return records;
}

/** A look that fails is part of the picture, so its problem is in the file. @param {string} path @param {any} run */
async function allLooks(path, run) {
  const { items } = await get(`${path}/looks`);
  const looks = [];
  for (const look of items) {
    const isEndless = look.form === "stream" && !run.ended_at;
    if (!look.request || isEndless) looks.push(look);
    else looks.push({ ...look, ...(await answerTo(look)) });
  }
  return looks;
}

/** @param {any} look */
async function answerTo(look) {
  try {
    const { status, headers, text, frames, value, isJson } = await send(look.request, { signal: AbortSignal.timeout(30_000) });
    const body = frames ? { frames: frames.map((each) => each.text) } : { body: isJson ? value : text };
    return { response: { status, headers, ...body } };
  } catch (error) {
    return { error: asProblem(error).message };
  }
}

/** Exchanges need a right that the caller may lack. @param {string} path */
async function allExchanges(path) {
  try {
    const { items } = await get(`${path}/exchanges`);
    return await Promise.all(items.map((/** @type {any} */ each) => get(`${path}/exchanges/${each.number}`)));
  } catch (error) {
    return { error: asProblem(error).message };
  }
}

/**
 * Save a text as a file.
 *
 * @param {string} name
 * @param {string} text
 */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
