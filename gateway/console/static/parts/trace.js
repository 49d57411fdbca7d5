/** The records of a run as a component follows them: pages of records, then the stream. */

import { get } from "../lib/api.js";
import { RunAnswers } from "../lib/answers.js";
import { unfold } from "../lib/log.js";
import { Trace } from "../lib/spans.js";
import { createStore } from "../lib/store.js";
import { useEffect, useMemo, useState, useStore } from "./html.js";
import { followRun } from "./live.js";
import { asProblem } from "./state.js";

/** Records of one page. The gateway's limit. */
const PAGE = 1000;
/** Milliseconds between two renderings while records arrive: each takes time that 50,000 records need themselves. */
const PAUSE = 150;

/** @typedef {import("../lib/stream.js").StreamState | "loading" | "failed"} TraceState */

/**
 * Follow a run. With `fold` the gateway joins the deltas of a part, so that 50,000 tokens are a few records. Without, each
 * event is a record here, although the gateway sends the deltas of a part together: that takes a thirtieth of the bytes.
 *
 * @param {string} runId
 * @param {boolean} fold
 */
export function useTrace(runId, fold) {
  // The events that arrived alone can be folded here, so that they need not be loaded again.
  const [isWhole, setWhole] = useState(!fold);
  useEffect(() => {
    if (!fold) setWhole(true);
  }, [fold]);
  const store = useMemo(() => createStore(new Trace()), [runId, isWhole]);
  const [state, setState] = useState(/** @type {TraceState} */ ("loading"));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    const trace = store.value;
    /** @type {{release: () => void} | null} */
    let claim = null;
    setState("loading");
    setProblem(null);
    let shownAt = 0;
    let timer = 0;
    const show = () => {
      clearTimeout(timer);
      timer = 0;
      shownAt = performance.now();
      store.touch();
    };
    const add = (/** @type {any[]} */ records) => {
      for (const record of records) trace.add(record);
      if (performance.now() - shownAt >= PAUSE) show();
      else timer ||= setTimeout(show, PAUSE);
    };
    const follow = () => {
      claim = followRun(runId, {
        after: trace.last || null,
        onRecords: add,
        onState: (next, error) => {
          show();
          setState(next);
          setProblem(error && asProblem(error));
        },
      });
    };
    const load = async () => {
      if (!(await loadPages(runId, trace, isWhole, add, controller.signal))) {
        show();
        setState("ended");
        return;
      }
      if (!controller.signal.aborted) follow();
    };
    load().catch((error) => {
      if (controller.signal.aborted) return;
      setState("failed");
      setProblem(asProblem(error));
    });
    return () => {
      clearTimeout(timer);
      controller.abort();
      claim?.release();
    };
  }, [store, turn]);
  useStore(store);
  return { trace: store.value, version: store.version, touch: store.touch, state, problem, retry: () => setTurn(turn + 1) };
}

/**
 * Load the records that exist. Returns true if more may come.
 *
 * @param {string} runId
 * @param {Trace} trace
 * @param {boolean} isWhole
 * @param {(records: any[]) => void} add
 * @param {AbortSignal} signal
 */
async function loadPages(runId, trace, isWhole, add, signal) {
  for (;;) {
    const query = { fold: 1, deltas: isWhole, limit: PAGE, after: trace.last || undefined };
    const page = await get(`runs/${encodeURIComponent(runId)}/records`, query, { signal });
    add(isWhole ? unfold(page.records) : page.records);
    if (page.next === null || page.next === undefined || !page.records.length) return !page.ended;
  }
}

/**
 * Find out who answered the questions of a run that has ended: the answer belongs to another run of the task.
 *
 * @param {ReturnType<typeof useTrace>} followed
 * @param {{run_id: string, task_id: string, thread_id: string, asks?: any[]} | null} run
 */
export function useAnswers({ trace, version, touch }, run) {
  const answers = useMemo(() => new RunAnswers(trace), [trace]);
  const hasEnded = trace.ended; // as rendered: the trace changes in place
  useEffect(() => {
    if (!run || !hasEnded) return undefined;
    const controller = new AbortController();
    answers.find(run, (path, query) => get(path, query, { signal: controller.signal })).then(
      (isChanged) => isChanged && touch(),
      () => {}, // The timeline shows the question as open, which is what the gateway last said.
    );
    return () => controller.abort();
  }, [answers, hasEnded, run?.run_id, run?.asks?.length]);
  return version;
}
