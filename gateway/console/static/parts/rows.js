/**
 * Rows of equal height, of which only those near the visible part exist in the document.
 *
 * 50,000 rows take as much memory as 40. While the reader scrolls, elements of rows that leave the window show those that
 * enter it: to create elements, and to lay them out, takes several times as long as to change them. The element is a `treegrid` with the true number of rows; it keeps the focus, and
 * `aria-activedescendant` names the current row, which therefore may leave the window and come back.
 */

import { html, useCallback, useEffect, useId, useLayoutEffect, useRef, useState } from "./html.js";

/** Height of a row in CSS pixels; console.css has the same. */
const HEIGHT = 24;
/** Rows by which the window moves at once, so that most scroll events render nothing. As many are above and below. */
const STRIDE = 8;

/**
 * @typedef {object} RowsProps
 * @property {string} label
 * @property {number} count
 * @property {number} current Position of the current row, or -1.
 * @property {(position: number) => void} onMove Called with the new current position.
 * @property {(position: number, key: string) => boolean} [onKey] Handles "Enter", "ArrowLeft" and "ArrowRight"; returns
 *   true if it did something.
 * @property {string[]} columns Titles of the columns.
 * @property {(position: number) => {level: number, expanded?: boolean, look?: string, cells: any[]}} row
 * @property {any} [backdrop] Shown behind all rows.
 * @property {boolean} [follow] Keep the last row visible.
 * @property {() => void} [onLeaveEnd] Called when the reader scrolls away from the end.
 */

/** @param {RowsProps} props */
export function Rows({ label, count, current, onMove, onKey, columns, row, backdrop, follow = false, onLeaveEnd }) {
  const prefix = useId();
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const [first, setFirst] = useState(0);
  const [height, setHeight] = useState(480);
  const size = Math.ceil(height / HEIGHT) + 3 * STRIDE;
  const start = Math.max(Math.min(first, count - size), 0);
  const end = Math.min(start + size, count);
  const keys = useSlots(start, end - start);

  const update = useCallback(() => {
    const node = frame.current;
    if (!node) return;
    const top = Math.floor(node.scrollTop / HEIGHT / STRIDE) * STRIDE;
    setFirst(Math.max(top - STRIDE, 0));
  }, []);

  useEffect(() => {
    const node = /** @type {HTMLElement} */ (frame.current);
    const observer = new ResizeObserver(() => setHeight(node.clientHeight));
    observer.observe(node);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const node = frame.current;
    if (follow && node) node.scrollTop = node.scrollHeight;
  }, [follow, count]);

  const isFirstRender = useRef(true);
  useLayoutEffect(() => {
    if (current >= 0 && !follow) reveal(frame.current, current, isFirstRender.current);
    isFirstRender.current = false;
    update();
  }, [current]);

  /** @param {KeyboardEvent} event */
  const handleKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== frame.current) return;
    const page = Math.max(Math.floor((frame.current?.clientHeight ?? 0) / HEIGHT) - 2, 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -count, End: count };
    if (event.key in steps) {
      onMove(Math.min(Math.max(current + steps[/** @type {keyof typeof steps} */ (event.key)], 0), count - 1));
    } else if (!["Enter", " ", "ArrowLeft", "ArrowRight"].includes(event.key) || !onKey?.(current, event.key)) return;
    event.preventDefault();
  };

  const handleScroll = () => {
    update();
    const node = /** @type {HTMLElement} */ (frame.current);
    if (follow && node.scrollHeight - node.scrollTop - node.clientHeight > 2 * HEIGHT) onLeaveEnd?.();
  };

  // Preact skips a vnode that it has rendered before, so scrolling by a few rows renders only those.
  const shown = useRef({ row, nodes: /** @type {Map<number, any>} */ (new Map()) });
  const nodes = new Map();
  for (let position = start; position < end; position += 1) {
    const key = keys[position - start];
    const isCurrent = position === current;
    let node = shown.current.row === row ? shown.current.nodes.get(position) : undefined;
    if (node?.key !== key || node.props["aria-selected"] !== String(isCurrent)) {
      node = rowOf(key, `${prefix}-${position}`, position, isCurrent, row(position), onMove);
    }
    nodes.set(position, node);
  }
  shown.current = { row, nodes };
  return html`<div
    class="rows" style=${{ height: `${count * HEIGHT + 2}px` }} role="treegrid" aria-label=${label} tabindex="0" ref=${frame} aria-rowcount=${count} aria-colcount=${columns.length}
    aria-activedescendant=${current >= start && current < end ? `${prefix}-${current}` : undefined}
    onScroll=${handleScroll} onKeyDown=${handleKey}
  >
    <div role="row" class="visually-hidden">${columns.map((title) => html`<span role="columnheader">${title}</span>`)}</div>
    <div class="rows-space" role="presentation" style=${{ height: `${count * HEIGHT}px` }}>
      ${backdrop}
      <div class="rows-window" role="presentation" style=${{ transform: `translateY(${start * HEIGHT}px)` }}>
        ${[...nodes.values()]}
      </div>
    </div>
  </div>`;
}

/**
 * Return the keys of the rows of a window. A row that stays in the window keeps its key, and so its element. A row that
 * enters gets the key of one that leaves. After a jump, no element moves.
 *
 * @param {number} start
 * @param {number} size
 * @returns {number[]}
 */
function useSlots(start, size) {
  const last = useRef({ start, keys: /** @type {number[]} */ ([]) });
  let { keys } = last.current;
  const moved = start - last.current.start;
  if (keys.length !== size) keys = Array.from({ length: size }, (_, index) => index);
  else if (Math.abs(moved) < size) keys = [...keys.slice(moved), ...keys.slice(0, moved)];
  last.current = { start, keys };
  return keys;
}

/**
 * @param {number} key
 * @param {string} id
 * @param {number} position
 * @param {boolean} isCurrent
 * @param {ReturnType<RowsProps["row"]>} content
 * @param {(position: number) => void} onMove
 */
function rowOf(key, id, position, isCurrent, { level, expanded, look = "", cells }, onMove) {
  return html`<div
    key=${key} id=${id} role="row" class="trow ${look}" aria-level=${level} aria-rowindex=${position + 1}
    aria-expanded=${expanded === undefined ? undefined : String(expanded)} aria-selected=${isCurrent ? "true" : "false"}
    onClick=${() => onMove(position)}
  >${cells.map((cell, index) => html`<div role="gridcell" class="cell-${index}">${cell}</div>`)}</div>`;
}

/**
 * Scroll so that a row is visible, and in the middle if it was far away.
 *
 * @param {HTMLElement | null} node
 * @param {number} position
 * @param {boolean} isFirst
 */
function reveal(node, position, isFirst) {
  if (!node) return;
  const top = position * HEIGHT;
  const { scrollTop, clientHeight } = node;
  if (top >= scrollTop && top + HEIGHT <= scrollTop + clientHeight) return;
  const isFar = isFirst || Math.abs(top - scrollTop) > 2 * clientHeight;
  if (isFar) node.scrollTop = top - clientHeight / 2;
  else node.scrollTop = top < scrollTop ? top : top + HEIGHT - clientHeight;
}
