/** The timeline of a run: a ruler, and a tree of spans and events with a bar for each. */

import { Axis } from "../lib/axis.js";
import { lineOf, positionOf, revealing, rowsOf } from "../lib/outline.js";
import { formatDuration } from "../lib/time.js";
import { html, useCallback, useEffect, useKeys, useMemo, useRef, useState } from "./html.js";
import { Rows } from "./rows.js";

/** @import { Trace } from "../lib/spans.js" */

/** Glyph of each kind of row. */
const GLYPHS = { run: "▶", queue: "…", attempt: "↻", step: "§", tool: "ƒ", message: "✎", artifact: "▤", question: "?", loss: "!", event: "·" };
const STATUS_WORDS = {
  open: ["◐", "running"],
  failed: ["✕", "failed"],
  void: ["⊘", "void"],
  cut: ["‖", "cut off"],
  asks: ["?", "asks"],
  cancelled: ["⊘", "cancelled"],
};
const COLUMNS = ["What happened", "When", "Details"];
/** Most ticks of the ruler: on a narrow screen more labels would overlap. */
const TICKS = 4;
/** Place on the ruler after which a label would leave it. */
const LAST_LABEL = 0.85;

/**
 * @param {object} props
 * @param {Trace} props.trace
 * @param {number} props.version Changes with each new record.
 * @param {{fold: boolean, filter: string, failures: boolean}} props.view
 * @param {number | null} props.at Event to show.
 * @param {boolean} props.follow
 * @param {() => void} props.onLeaveEnd
 * @param {(row: number | null) => void} props.onSelect Called with the selected row, as `lib/outline` numbers them.
 */
export function Timeline({ trace, version, view: { fold, filter, failures }, at, follow, onLeaveEnd, onSelect }) {
  const [expanded, setExpanded] = useState(/** @type {Map<number, boolean>} */ (new Map()));
  const [selected, setSelected] = useState(/** @type {number | null} */ (null));
  const view = useMemo(() => ({ expanded, fold, filter, failures }), [expanded, fold, filter, failures]);
  const rows = useMemo(() => rowsOf(trace, view), [trace, version, view]);
  const axis = useMemo(() => new Axis(trace.start, Math.max(trace.end, trace.start + 1), trace.gaps), [trace, version]);
  const current = useMemo(() => (selected === null ? -1 : rows.indexOf(selected)), [rows, selected]);

  const select = useCallback(
    (/** @type {number | null} */ row) => {
      setSelected(row);
      onSelect(row);
    },
    [onSelect],
  );

  // An address names an event: select its row as soon as it is here, and expand what is above it.
  const sought = useRef(/** @type {number | null} */ (null));
  useEffect(() => {
    if (at === null || sought.current === at) return;
    const index = trace.indexOf(at);
    if (index === -1) return;
    sought.current = at;
    const revealed = revealing(trace, index, expanded);
    const open = rowsOf(trace, { ...view, expanded: revealed });
    const position = positionOf(trace, open, index);
    setExpanded(revealed);
    if (position !== -1) select(open[position]);
  }, [trace, version, at]);

  /** @param {number} step */
  const move = (step) => {
    if (rows.length) select(rows[Math.min(Math.max(current + step, 0), rows.length - 1)]);
    /** @type {HTMLElement | null} */ (document.querySelector("main [role=treegrid]"))?.focus();
  };
  useKeys({ j: () => move(1), k: () => move(-1) });
  /** @param {number} position @param {boolean} isOpen */
  const toggle = (position, isOpen) => {
    const span = trace.spans[~rows[position]];
    setExpanded(new Map(expanded).set(span.index, isOpen));
  };
  /** @param {number} position @param {string} key */
  const handleKey = (position, key) => {
    const line = position >= 0 ? lineOf(trace, rows[position], view) : null;
    if (!line) return false;
    if (key === "Enter" || key === " ") {
      if (line.expandable) toggle(position, !line.expanded);
    } else if (key === "ArrowRight") {
      if (line.expandable && !line.expanded) toggle(position, true);
      else if (position + 1 < rows.length) select(rows[position + 1]);
    } else if (line.expandable && line.expanded) toggle(position, false);
    else select(rows[above(position)]);
    return true;
  };
  /** Return the position of the row above a row in the tree. @param {number} position */
  const above = (position) => {
    const { depth } = lineOf(trace, rows[position], view);
    let each = position;
    while (each > 0 && lineOf(trace, rows[each], view).depth >= depth) each -= 1;
    return each;
  };

  const row = useCallback(
    (/** @type {number} */ position) => {
      const line = lineOf(trace, rows[position], view);
      return {
        level: line.depth + 1,
        expanded: line.expandable ? line.expanded : undefined,
        look: `kind-${line.kind} ${line.status ? `is-${line.status}` : ""}`,
        cells: [nameCell(line, () => toggle(position, !line.expanded)), barCell(line, axis, trace), noteCell(line)],
      };
    },
    [trace, version, rows, view, axis],
  );

  return html`<div class="timeline" data-rows=${rows.length} data-events=${trace.events}>
    <${Ruler} axis=${axis} />
    <${Rows}
      label="Timeline" count=${rows.length} current=${current} columns=${COLUMNS} follow=${follow} onLeaveEnd=${onLeaveEnd}
      onMove=${(/** @type {number} */ position) => select(rows[position] ?? null)} onKey=${handleKey}
      row=${row} backdrop=${html`<div class="gaps" aria-hidden="true"><div class="gaps-scale">${axis.gaps.map(
        ({ left, width }) => html`<span class="gap" style=${{ left: `${left * 100}%`, width: `${width * 100}%` }}></span>`,
      )}</div></div>`}
    />
    ${rows.length === 0 && html`<p class="muted">No event matches the filter.</p>`}
  </div>`;
}

/** @param {import("../lib/outline.js").Line} line @param {() => void} onToggle */
function nameCell(line, onToggle) {
  const isAnswered = line.kind === "question" && line.status === "ok";
  const [glyph, word] = STATUS_WORDS[line.status] ?? [GLYPHS[line.kind], isAnswered ? "answered" : ""];
  return html`<span class="row-name" style=${{ paddingLeft: `${Math.min(line.depth, 8) * 12}px` }}>
    ${line.expandable
      ? html`<span class="twist" aria-hidden="true" onClick=${(/** @type {Event} */ event) => (event.stopPropagation(), onToggle())}>${line.expanded ? "▾" : "▸"}</span>`
      : html`<span class="twist" aria-hidden="true"></span>`}
    <span class="glyph" aria-hidden="true">${glyph}</span> <span class="row-title" title=${line.name}>${line.name}</span>
    ${word && html` <span class="row-status">${word}</span>`}
  </span>`;
}

/** @param {import("../lib/outline.js").Line} line @param {Axis} axis @param {Trace} trace */
function barCell(line, axis, trace) {
  const left = axis.place(line.start);
  const right = axis.place(line.end ?? trace.end);
  const isPoint = line.end !== null && line.end === line.start;
  const style = { left: `${left * 100}%`, width: isPoint ? "" : `${Math.max(right - left, 0) * 100}%` };
  return html`<span class="track" role="img" aria-label="after ${formatDuration((line.start - trace.start) / 1000)}"
    ><span class=${isPoint ? "dot" : "bar"} style=${style}></span></span>`;
}

/** @param {import("../lib/outline.js").Line} line */
function noteCell(line) {
  const seconds = line.end === null ? null : (line.end - line.start) / 1000;
  const isTimed = line.kind !== "event" && line.kind !== "loss" && seconds !== null;
  return html`<span class="row-note">
    ${isTimed && html`<span class="row-time">${formatDuration(seconds)}</span> `}${line.hidden && html`<span class="row-hidden">${line.hidden}</span> `}<span title=${line.note}>${line.note}</span>
  </span>`;
}

/** Times from the start of the run. Idle times are narrow and labeled. @param {{axis: Axis}} props */
function Ruler({ axis }) {
  return html`<div class="ruler ${axis.gaps.length ? "has-gaps" : ""}" aria-hidden="true">
    <div class="ruler-scale">
      ${axis.ticks(TICKS).map(({ left, offset }) => html`<span class="tick" style=${{ left: `${left * 100}%` }}>${left < LAST_LABEL && formatDuration(offset / 1000)}</span>`)}
      ${axis.gaps.map(
        ({ from, to, left, width }) =>
          html`<span class="ruler-gap" title="${formatDuration((to - from) / 1000)} without an event" style=${{ left: `${left * 100}%`, width: `${width * 100}%` }}
            ><span class="gap-label">${formatDuration((to - from) / 1000)} idle</span></span>`,
      )}
    </div>
  </div>`;
}

