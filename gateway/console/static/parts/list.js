/** A list of the console's API: pages, and live rows. Rows that are shown change in place; new ones wait for a click. */

import { get } from "../lib/api.js";
import { count } from "../lib/time.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { useChanges } from "./live.js";
import { asProblem, LiveMark, ProblemNote, useLoad } from "./state.js";

/**
 * A list that follows changes.
 *
 * @param {string} path Path of the list, such as `threads`. One item is below it: `threads/{id}`.
 * @param {Record<string, any>} query Filter of the list.
 * @param {{kind: string, idOf: (item: any) => string, isFresh?: (change: any) => boolean, limit?: number}} options
 *   `isFresh` says whether a change of a thing that is not shown counts as new.
 */
export function useList(path, query, { kind, idOf, isFresh = () => true, limit = 50 }) {
  const filter = JSON.stringify(query);
  const load = useLoad((signal) => get(path, { ...query, limit }, { signal }), [path, filter]);
  const [more, setMore] = useState({ isBusy: false, problem: /** @type {any} */ (null) });
  const [fresh, setFresh] = useState(/** @type {string[]} */ ([]));
  const items = load.value?.items ?? [];
  const shown = useRef(items);
  shown.current = items;
  useEffect(() => setFresh([]), [filter, load.value === null]);
  /** @param {string} id */
  const update = async (id) => {
    try {
      const item = await get(`${path}/${encodeURIComponent(id)}`);
      load.set((value) => ({ ...value, items: value.items.map((/** @type {any} */ each) => (idOf(each) === id ? item : each)) }));
    } catch (error) {
      if (asProblem(error).status === 404) {
        load.set((value) => ({ ...value, items: value.items.filter((/** @type {any} */ each) => idOf(each) !== id) }));
      }
    }
  };
  const state = useChanges(
    [kind],
    (changes) => {
      if (changes === null) return load.reload();
      for (const id of new Set(changes.map((change) => change.id))) {
        if (shown.current.some((each) => idOf(each) === id)) void update(id);
        else if (isFresh(changes.find((change) => change.id === id))) setFresh((old) => [...new Set([...old, id])]);
      }
    },
    { all: query.all === true },
  );
  const loadMore = async () => {
    setMore({ isBusy: true, problem: null });
    try {
      const page = await get(path, { ...query, limit, after: load.value.next });
      load.set((value) => {
        const known = new Set(value.items.map(idOf));
        return { next: page.next, items: [...value.items, ...page.items.filter((/** @type {any} */ each) => !known.has(idOf(each)))] };
      });
      setMore({ isBusy: false, problem: null });
    } catch (error) {
      setMore({ isBusy: false, problem: asProblem(error) });
    }
  };
  const showFresh = () => {
    setFresh([]);
    load.reload();
  };
  const status = load.value === null ? load.status : load.problem ? "stale" : items.length === 0 ? "empty" : state === "live" ? "live" : state === "reconnecting" || state === "paused" ? state : "ready";
  return { load, items, hasMore: Boolean(load.value?.next), more, loadMore, fresh: fresh.length, showFresh, state, status };
}

/** @typedef {ReturnType<typeof useList>} List */

/** The line below the heading of a list: its number of items, whether it is live, and new ones. @param {{list: List, noun: string}} props */
export function ListLead({ list, noun }) {
  return html`<p>${list.load.value && html`${count(list.items.length, noun)}${list.hasMore && ", and more"}`}</p>
    <${LiveMark} state=${list.state} />
    ${list.fresh > 0 && html`<button type="button" class="small" onClick=${list.showFresh} data-fresh=${list.fresh}>Show ${list.fresh} new</button>`}`;
}

/** The button below a list that loads the next page. @param {{list: List}} props */
export function ListMore({ list }) {
  const { problem, isBusy } = list.more;
  return html`${problem && html`<${ProblemNote} problem=${problem} retry=${list.loadMore} />`}
    ${list.hasMore && !problem && html`<button type="button" onClick=${list.loadMore} disabled=${isBusy}>${isBusy ? "Loading…" : "Show more"}</button>`}`;
}
