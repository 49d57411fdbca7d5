/** One thread, live: loads its turns, sends messages and answers, follows its runs one after the other, cancels them. */

import { call, get } from "../lib/api.js";
import { Conversation } from "../lib/conversation.js";
import { createStore, nextFrame } from "../lib/store.js";
import { announce } from "./announce.js";
import { followRun } from "./live.js";
import { asProblem } from "./state.js";

/** Records per page when a run is loaded. */
const PAGE = 1000;
/** Turns of a thread that are loaded at first. Chosen. */
const TURNS = 20;

/** Events of a turn from which it is shown less often. Measured: the layout of 50,000 tokens takes 10 ms, 2026-11. */
const LARGE = 5_000;

/** What screen readers hear when a run has ended. @type {Record<string, string>} */
const OUTCOMES = { success: "done", paused: "waiting for your answer", error: "failed", timeout: "failed", cancelled: "cancelled" };

/**
 * @typedef {object} ChatState
 * @property {"empty" | "loading" | "ready"} phase
 * @property {string | null} threadId
 * @property {import("../lib/stream.js").StreamState} live State of the stream; `ended` if no run is active.
 * @property {any} problem The last failure.
 * @property {string[]} earlier Ids of runs that are not loaded, oldest first.
 * @property {boolean} isSending
 * @property {{method: string, path: string, body: any, at: string} | null} request The last request.
 */

export class Chat {
  /** @param {string | null} threadId */
  constructor(threadId) {
    this.conversation = new Conversation();
    /** @type {import("../lib/store.js").Store<ChatState>} */
    this.state = createStore({
      phase: threadId ? "loading" : "empty",
      threadId,
      live: "ended",
      problem: null,
      earlier: [],
      isSending: false,
      request: null,
    }, (callback) => this._schedule(callback));
    /** Runs that are not known to have ended, in the order of their creation. @type {string[]} */
    this._active = [];
    /** @type {{runId: string, claim: ReturnType<typeof followRun>} | null} */
    this._following = null;
    this._isClosed = false;
  }

  /** Show a long answer ten times a second: the layout of a large text takes most of a frame. @param {() => void} callback */
  _schedule(callback) {
    const size = this.conversation.turns.at(-1)?.count ?? 0;
    if (size > LARGE) setTimeout(callback, 100);
    else nextFrame(callback);
  }

  /** Stop following. The runs continue. */
  close() {
    this._isClosed = true;
    this._following?.claim.release();
    this._following = null;
  }

  /** Reconnect after an error of the stream. */
  reconnect() {
    this._following?.claim.retry();
  }

  /** Load the newest turns of the thread, and follow those that are active. */
  async load() {
    const { threadId } = this.state.value;
    if (!threadId) return;
    this._change({ phase: "loading", problem: null });
    try {
      const thread = await get(`threads/${threadId}`);
      const runIds = thread.run_ids ?? [];
      await this._loadRuns(runIds.slice(-TURNS));
      this._change({ phase: "ready", earlier: runIds.slice(0, -TURNS) });
      this._followNext();
    } catch (error) {
      this._change({ phase: "ready", problem: asProblem(error) });
    }
  }

  /** Load the runs that others have added to the thread. */
  async refresh() {
    const { threadId, phase, isSending } = this.state.value;
    if (!threadId || phase !== "ready" || isSending || this._isClosed) return;
    try {
      const { run_ids: runIds = [] } = await get(`threads/${threadId}`);
      const shown = new Set(this.conversation.turns.map(({ runId }) => runId));
      const isNewer = this.conversation.turns.length ? (/** @type {string} */ id) => runIds.indexOf(id) > runIds.indexOf(this.conversation.turns[0].runId) : () => true;
      await this._loadRuns(runIds.filter((/** @type {string} */ id) => !shown.has(id) && isNewer(id)));
      this._touch();
      this._followNext();
    } catch (error) {
      this._change({ problem: asProblem(error) });
    }
  }

  /** Load more of the earlier turns, in front of the others. */
  async loadEarlier() {
    const { earlier } = this.state.value;
    const newer = this.conversation;
    try {
      this.conversation = new Conversation();
      await this._loadRuns(earlier.slice(-TURNS));
      for (const turn of newer.turns) this.conversation.adopt(turn);
      this._change({ earlier: earlier.slice(0, -TURNS) });
    } catch (error) {
      this.conversation = newer;
      this._change({ problem: asProblem(error) });
    }
  }

  /** @param {string[]} runIds */
  async _loadRuns(runIds) {
    for (const runId of runIds) {
      let after = 0;
      for (;;) {
        const page = await get(`runs/${runId}/records`, { after, limit: PAGE, fold: true });
        this.conversation.add(page.records);
        if (page.next === null || page.next === undefined) {
          if (!page.ended && !this._active.includes(runId)) this._active.push(runId);
          const turn = this.conversation.turn(runId);
          if (turn.hasSchema) void this._checkOutput(turn);
          break;
        }
        after = page.next;
      }
    }
  }

  /**
   * Start a run, on the thread if there is one.
   *
   * @param {Record<string, unknown>} body Body of the request without `background`.
   */
  async send(body) {
    const { threadId } = this.state.value;
    return this._start("POST", threadId ? `/v1/threads/${threadId}/runs` : "/v1/runs", body);
  }

  /**
   * Answer or decline a question.
   *
   * @param {{run_id: string, interrupt_id: string}} question
   * @param {{value: any} | {decline: true}} answer
   */
  async answer({ run_id, interrupt_id }, answer) {
    const path = `/v1/threads/${this.state.value.threadId}/resume`;
    const content = "value" in answer ? { answers: { [interrupt_id]: answer.value } } : answer;
    return this._start("POST", path, { run_id, ...content });
  }

  /** Cancel a run. @param {string} runId */
  async cancel(runId) {
    try {
      await call("POST", `/v1/runs/${runId}/cancel`);
      announce("cancelling");
      // A run that waits for an answer has ended, so no stream reports its cancel.
      const turn = this.conversation.turn(runId);
      if (turn.endedAt) {
        turn.status = "cancelled";
        this.conversation.closeQuestions(runId);
        this._touch();
      }
    } catch (error) {
      this._change({ problem: asProblem(error) });
    }
  }

  /**
   * Send a request that starts a run, in the background: so a broken connection never sends it twice, and the run is
   * followed by its own stream. Returns true if the gateway accepted it.
   *
   * @param {string} method
   * @param {string} path
   * @param {Record<string, unknown>} content
   */
  async _start(method, path, content) {
    const body = { ...content, background: true };
    this._change({ isSending: true, problem: null, request: { method, path, body, at: new Date().toISOString() } });
    try {
      const run = await call(method, path, body);
      this._change({ isSending: false, threadId: run.thread_id, phase: "ready" });
      this.conversation.turn(run.run_id).createdAt ??= run.timestamps?.created_at ?? null;
      if (!this._active.includes(run.run_id)) this._active.push(run.run_id);
      this._touch();
      this._followNext();
      return true;
    } catch (error) {
      this._change({ isSending: false, problem: asProblem(error) });
      return false;
    }
  }

  /** Follow the oldest active run: a thread executes its runs one after the other. */
  _followNext() {
    if (this._isClosed || this._following || !this._active.length) return;
    const runId = this._active[0];
    const turn = this.conversation.turn(runId);
    this._following = {
      runId,
      claim: followRun(runId, {
        after: turn.last || null,
        onRecords: (records) => this._receive(runId, records),
        onState: (live, problem) => this._handleState(live, problem),
      }),
    };
  }

  /** @param {string} runId @param {any[]} records */
  _receive(runId, records) {
    const turn = this.conversation.turn(runId);
    const hadOutput = turn.firstOutputAt !== null;
    this.conversation.add(records);
    if (!hadOutput && turn.firstOutputAt !== null) announce("answering");
    if (turn.endedAt !== null) {
      announce(OUTCOMES[turn.status] ?? turn.status);
      if (turn.hasSchema) void this._checkOutput(turn);
    }
    this._touch();
  }

  /** Read what the gateway says of an output that must fit a schema. @param {import("../lib/conversation.js").Turn} turn */
  async _checkOutput(turn) {
    if (turn.status !== "success") return;
    try {
      const { status, error, output } = await call("GET", `/v1/runs/${turn.runId}`);
      Object.assign(turn, { status, fault: error ?? turn.fault, output: output?.data ?? turn.output });
      turn.version += 1;
      if (error) announce("failed");
      this._touch();
    } catch (error) {
      this._change({ problem: asProblem(error) });
    }
  }

  /** @param {import("../lib/stream.js").StreamState} live @param {Error | null} problem */
  _handleState(live, problem) {
    const isGone = live === "error" && asProblem(problem).status === 404; // rolled back, or erased
    if (live === "ended" || isGone) {
      const runId = this._active.shift();
      if (isGone && runId) this.conversation.forget(runId);
      this._following?.claim.release();
      this._following = null;
      queueMicrotask(() => this._followNext());
    }
    this._change({ live: isGone ? "ended" : live, ...(live === "error" && !isGone ? { problem: asProblem(problem) } : {}) });
  }

  /** @param {Partial<ChatState>} changes */
  _change(changes) {
    if (!this._isClosed) this.state.set((value) => ({ ...value, ...changes }));
  }

  _touch() {
    if (!this._isClosed) this.state.touch();
  }
}
