/** Who answered the questions of a run. The answer is a record of a later run of the same task. No DOM. */

import { protocolText } from "./protocol.js";
import { parseTime } from "./time.js";

/** @import { Trace } from "./spans.js" */

/** Later runs of the thread that are read. Chosen: the answer is nearly always in the next one. */
const MAX_RUNS = 5;
/** Records at the start of a run, among which are its answers. */
const FIRST_RECORDS = 50;

/** Finds the answers to the open questions of one run. */
export class RunAnswers {
  /** @param {Trace} trace */
  constructor(trace) {
    this._trace = trace;
  }

  get _open() {
    return this._trace.spans.filter((span) => span.kind === "question" && span.status === "asks");
  }

  /**
   * Look for the answers, and return true if there are any.
   *
   * @param {{run_id: string, task_id: string, thread_id: string}} run
   * @param {(path: string, query?: Record<string, any>) => Promise<any>} get
   */
  async find(run, get) {
    if (!this._open.length) return false;
    const { run_ids: ids = [] } = await get(`threads/${run.thread_id}`);
    const later = ids.slice(ids.indexOf(run.run_id) + 1, ids.indexOf(run.run_id) + 1 + MAX_RUNS);
    let isChanged = false;
    for (const id of later) {
      if (!this._open.length) break;
      const next = await get(`runs/${id}`);
      if (next.task_id !== run.task_id) continue;
      const { records } = await get(`runs/${id}/records`, { fold: 1, limit: FIRST_RECORDS });
      isChanged = this._apply(records, next) || isChanged;
    }
    return isChanged;
  }

  /** @param {any[]} records @param {{run_id: string, protocol?: string}} run */
  _apply(records, run) {
    const known = new Set(this._open.map((span) => span.data.interrupt_id));
    const answers = records.filter((each) => each.event_type === "interrupt_answered" && known.has(each.payload.interrupt_id));
    for (const { payload, timestamp } of answers) {
      const verb = payload.action === "answer" ? "answered" : payload.action === "decline" ? "declined" : "superseded";
      const through = run.protocol ? ` through ${protocolText(run)}` : "";
      this._trace.answered(payload.interrupt_id, parseTime(timestamp) ?? 0, `${verb}${through} by run ${run.run_id}`, payload.action);
    }
    return answers.length > 0;
  }
}
