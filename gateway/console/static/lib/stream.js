/**
 * Streams of server-sent events: one at a time, resumed without a gap or a duplicate.
 *
 * A browser opens at most six connections per host over HTTP/1.1, for all tabs together. So a tab has one stream, and
 * `StreamOwner` decides which one of those that its pages want.
 */

import { FrameParser } from "./frames.js";

export { FrameParser };

/** @typedef {import("./frames.js").Frame} Frame */

/** Milliseconds of silence after which a connection counts as dead. The gateway's heartbeat is 15 s. */
const SILENCE = 35_000;
/** Shortest and longest pause between two attempts to connect, in milliseconds. */
const BACKOFF = { first: 250, longest: 10_000 };
/** Milliseconds after which a hidden tab closes its stream. */
const HIDDEN = 30_000;

/** Streams of all tabs together. Of the six connections, two remain for requests. */
const MAX_STREAMS = 4;

/** @typedef {"connecting" | "live" | "reconnecting" | "paused" | "ended" | "error"} StreamState */

/**
 * @typedef {object} StreamRequest
 * @property {number} [priority] The stream with the highest priority is open; of equal ones the newest.
 * @property {string | null} [cursor] Id of the last event that the page has.
 * @property {(cursor: string | null, signal: AbortSignal) => Promise<Response>} open
 * @property {(frames: Frame[]) => void} onFrames Receives new frames, those that arrived together at once.
 * @property {(state: StreamState, problem: (Error & {isTemporary?: boolean}) | null) => void} [onState]
 * @property {(frame: Frame) => boolean} [isLast] True if the stream ends with this frame. Otherwise it is reopened.
 */

/** Opens one stream at a time out of those that the pages of a tab want. */
export class StreamOwner {
  /**
   * @param {{silence?: number, backoff?: {first: number, longest: number}, hidden?: number}} [times] Milliseconds.
   * @param {BroadcastChannel | null} [channel] Tells the other tabs when this one opens or closes its stream.
   */
  constructor(times = {}, channel = null) {
    this._silence = times.silence ?? SILENCE;
    this._backoff = times.backoff ?? BACKOFF;
    this._hidden = times.hidden ?? HIDDEN;
    /** @type {Claim[]} */
    this._claims = [];
    this._isPaused = false;
    this._isVisible = true;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._timer = undefined;
    this._channel = channel;
    this._id = `${Math.random()}`;
    this._isOpen = false;
    /** Tabs whose streams are newer than that of this tab. @type {Set<string>} */
    this._newer = new Set();
    if (channel) channel.onmessage = ({ data }) => this._hear(data);
  }

  /**
   * Ask for a stream. It opens now, or when those with a higher priority are released or have ended.
   *
   * @param {StreamRequest} wanted
   * @returns {{release: () => void, retry: () => void}} `retry` reopens a stream that stopped with an error.
   */
  claim(wanted) {
    const claim = new Claim(wanted, this._silence, this._backoff, () => this._elect());
    this._claims.push(claim);
    this._elect();
    return {
      release: () => {
        this._claims = this._claims.filter((each) => each !== claim);
        claim.stop();
        this._elect();
      },
      retry: () => {
        claim.isDone = false;
        this._elect();
      },
    };
  }

  /**
   * Report whether the tab is visible. A tab that stays hidden closes its stream, and resumes it later.
   *
   * @param {boolean} isVisible
   */
  setVisible(isVisible) {
    clearTimeout(this._timer);
    this._isVisible = isVisible;
    if (isVisible) return this.wake();
    this._timer = setTimeout(() => this._pause(), this._hidden);
  }

  /** Reopen the stream, because somebody uses the tab. */
  wake() {
    if (!this._isPaused) return;
    this._isPaused = false;
    this._elect();
  }

  /** Close the stream for good, because the tab closes. */
  close() {
    this._pause();
    this._channel?.close();
  }

  _pause() {
    this._isPaused = true;
    this._elect();
  }

  /**
   * Make room for the stream of another tab: a hidden tab at once, a visible one if there are too many newer ones.
   *
   * @param {{id: string, isOpen: boolean}} message
   */
  _hear({ id, isOpen }) {
    if (isOpen) this._newer.add(id);
    else this._newer.delete(id);
    if (isOpen && (!this._isVisible || this._newer.size >= MAX_STREAMS)) this._pause();
  }

  /** Tell the other tabs whether this one has a stream. @param {boolean} isOpen */
  _tell(isOpen) {
    if (isOpen === this._isOpen) return;
    this._isOpen = isOpen;
    if (isOpen) this._newer.clear();
    this._channel?.postMessage({ id: this._id, isOpen });
  }

  _elect() {
    /** @type {Claim | null} */
    let chosen = null;
    for (const claim of this._isPaused ? [] : this._claims) {
      if (!claim.isDone && (!chosen || claim.priority >= chosen.priority)) chosen = claim;
    }
    for (const claim of this._claims) if (claim !== chosen) claim.pause();
    this._tell(chosen !== null);
    chosen?.start();
  }
}

/** One wanted stream: its cursor, and its connection if it is open. */
class Claim {
  /**
   * @param {StreamRequest} wanted
   * @param {number} silence
   * @param {{first: number, longest: number}} backoff
   * @param {() => void} onDone
   */
  constructor(wanted, silence, backoff, onDone) {
    this.priority = wanted.priority ?? 0;
    this.isDone = false;
    this._wanted = wanted;
    this._cursor = wanted.cursor ?? null;
    this._silence = silence;
    this._backoff = backoff;
    this._onDone = onDone;
    this._hasOpened = false;
    /** @type {AbortController | null} */
    this._controller = null;
  }

  start() {
    if (this._controller) return;
    this._controller = new AbortController();
    void this._follow(this._controller);
  }

  stop() {
    this._controller?.abort();
    this._controller = null;
  }

  pause() {
    const isOpen = this._controller !== null;
    this.stop();
    if (isOpen && !this.isDone) this._report("paused");
  }

  /** @param {StreamState} state @param {Error | null} [problem] */
  _report(state, problem = null) {
    this._wanted.onState?.(state, problem);
  }

  /** @param {StreamState} state @param {Error | null} [problem] */
  _finish(state, problem = null) {
    this.isDone = true;
    this.stop();
    this._report(state, problem);
    this._onDone();
  }

  /** Read until the last frame, over as many connections as this takes. @param {AbortController} owner */
  async _follow(owner) {
    let pause = this._backoff.first;
    this._report(this._hasOpened ? "reconnecting" : "connecting");
    while (!owner.signal.aborted) {
      /** @type {Error | null} */
      let problem = null;
      try {
        const hasEnded = await this._read(owner, () => (pause = this._backoff.first));
        if (owner.signal.aborted) return;
        if (hasEnded) return this._finish("ended");
      } catch (error) {
        if (owner.signal.aborted) return;
        problem = /** @type {Error & {isTemporary?: boolean}} */ (error);
        if ("isTemporary" in problem && !problem.isTemporary) return this._finish("error", problem);
      }
      this._report("reconnecting", problem);
      await wait(pause, owner.signal);
      pause = Math.min(pause * 2, this._backoff.longest);
    }
  }

  /**
   * Read one connection. Returns true after the last frame, and false if the connection ended before.
   *
   * @param {AbortController} owner
   * @param {() => void} onProgress
   */
  async _read(owner, onProgress) {
    const attempt = new AbortController();
    const abort = () => attempt.abort();
    owner.signal.addEventListener("abort", abort);
    let timer = setTimeout(abort, this._silence);
    try {
      const response = await this._wanted.open(this._cursor, attempt.signal);
      if (owner.signal.aborted) return false;
      this._hasOpened = true;
      this._report("live");
      const parser = new FrameParser();
      const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body)
        .pipeThrough(new TextDecoderStream())
        .getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || owner.signal.aborted) return false;
        clearTimeout(timer);
        timer = setTimeout(abort, this._silence);
        const frames = parser.push(value).filter((frame) => this._isNew(frame));
        if (!frames.length) continue;
        onProgress();
        this._wanted.onFrames(frames);
        if (this._wanted.isLast?.(frames[frames.length - 1])) return true;
      }
    } finally {
      clearTimeout(timer);
      owner.signal.removeEventListener("abort", abort);
      attempt.abort();
    }
  }

  /** Advance the cursor, and return false for a frame that was received before. @param {Frame} frame */
  _isNew(frame) {
    if (frame.id === null) return true;
    if (this._cursor !== null && Number(frame.id) <= Number(this._cursor)) return false;
    this._cursor = frame.id;
    return true;
  }
}

/** @param {number} milliseconds @param {AbortSignal} signal */
const wait = (milliseconds, signal) =>
  new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", finish);
      resolve(undefined);
    };
    const timer = setTimeout(finish, milliseconds);
    signal.addEventListener("abort", finish);
  });
