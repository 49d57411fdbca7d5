/** The stream of this tab, and hooks that follow changes and runs. */

import { consoleUrl, gatewayUrl, openStream } from "../lib/api.js";
import { StreamOwner } from "../lib/stream.js";
import { useEffect, useRef, useState } from "./html.js";

/** Decides which stream of this tab is open. */
export const streams = new StreamOwner({}, globalThis.BroadcastChannel ? new BroadcastChannel("babelgate.streams") : null);

document.addEventListener("visibilitychange", () => streams.setVisible(!document.hidden));
for (const type of ["focus", "pointerdown", "keydown"]) addEventListener(type, () => streams.wake(), true);
addEventListener("pagehide", ({ persisted }) => persisted || streams.close());

/** Streams with a higher number are open first. */
export const PRIORITY = { changes: 0, run: 1 };

/** @typedef {{kind: string, id: string | null, status: string, agent: string, at: string}} Change */

/**
 * Follow changes of some kinds. They are hints: `onChange` gets those that arrived together, or null if some may have
 * been missed, so that the page must load again.
 *
 * @param {string[]} kinds
 * @param {(changes: Change[] | null) => void} onChange
 * @param {{all?: boolean}} [options] `all`: of all owners, for operators.
 * @returns {import("../lib/stream.js").StreamState}
 */
export function useChanges(kinds, onChange, { all = false } = {}) {
  const [state, setState] = useState(/** @type {import("../lib/stream.js").StreamState} */ ("connecting"));
  const handler = useRef(onChange);
  handler.current = onChange;
  const wanted = kinds.join();
  useEffect(() => {
    let wasLive = false;
    const claim = streams.claim({
      priority: PRIORITY.changes,
      open: (_cursor, signal) => openStream(consoleUrl("changes", { all }), null, signal),
      onState: (next) => {
        setState(next);
        if (next === "live" && wasLive) handler.current(null);
        wasLive ||= next === "live";
      },
      onFrames: (frames) => {
        const changes = frames.map(({ data }) => parse(data)).filter((each) => wanted.split(",").includes(each?.kind));
        // A hint without an id stands for several: the gateway had too many, or missed some of another node.
        if (changes.length) handler.current(changes.some(({ id }) => id === null) ? null : changes);
      },
    });
    return claim.release;
  }, [wanted, all]);
  return state;
}

/**
 * Open the stream of a run's records, from after an event.
 *
 * @param {string} runId
 * @param {object} options
 * @param {number | string | null} [options.after] Id of the last record that the page has.
 * @param {(records: any[]) => void} options.onRecords
 * @param {(state: import("../lib/stream.js").StreamState, problem: Error | null) => void} [options.onState]
 */
export function followRun(runId, { after = null, onRecords, onState }) {
  return streams.claim({
    priority: PRIORITY.run,
    cursor: after === null ? null : String(after),
    open: (cursor, signal) => openStream(gatewayUrl(`/v1/runs/${runId}/stream`), cursor, signal),
    onFrames: (frames) => onRecords(frames.map(({ data }) => JSON.parse(data))),
    onState,
    isLast: ({ event }) => event === "run_ended",
  });
}

/** @param {string} data */
function parse(data) {
  try {
    return JSON.parse(data);
  } catch {
    return null;
  }
}
