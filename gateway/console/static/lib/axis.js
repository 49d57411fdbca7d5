/**
 * Time axis of a run: linear, but long idle times take a small share of the width. No DOM.
 *
 * @typedef {{from: number, to: number, left: number, width: number, idle: boolean}} Segment
 *   Times in milliseconds; `left` and `width` are fractions of the axis.
 */

/** Share of the axis that one idle time takes, and that all of them take at most. Chosen. */
const IDLE_SHARE = 0.05;
const MAX_IDLE_SHARE = 0.4;
const STEPS = [1, 2, 5];

/** Axis from `start` to `end` on which each gap is compressed. */
export class Axis {
  /** @param {number} start @param {number} end @param {{from: number, to: number}[]} gaps in order */
  constructor(start, end, gaps = []) {
    const inside = gaps.filter((gap) => gap.from >= start && gap.to <= end);
    const idle = inside.reduce((sum, gap) => sum + gap.to - gap.from, 0);
    const work = Math.max(end - start - idle, 0);
    const share = Math.min(IDLE_SHARE, inside.length ? MAX_IDLE_SHARE / inside.length : 0);
    const rest = work > 0 ? 1 - share * inside.length : 0;
    this.start = start;
    this.end = end;
    /** @type {Segment[]} */
    this.segments = [];
    let left = 0;
    let from = start;
    const push = (to, width, isIdle) => {
      if (to > from || isIdle) this.segments.push({ from, to, left, width, idle: isIdle });
      left += width;
      from = to;
    };
    const workWidth = (milliseconds) => (work > 0 ? (milliseconds / work) * rest : 0);
    const gapWidth = work > 0 ? share : 1 / Math.max(inside.length, 1);
    for (const gap of inside) {
      push(gap.from, workWidth(gap.from - from), false);
      push(gap.to, gapWidth, true);
    }
    push(end, workWidth(end - from), false);
  }

  get gaps() {
    return this.segments.filter((segment) => segment.idle);
  }

  /** Return the place of a time as a fraction of the axis, from 0 to 1. */
  place(at) {
    const { segments } = this;
    if (!segments.length || at <= this.start) return 0;
    if (at >= this.end) return 1;
    let low = 0;
    let high = segments.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (segments[middle].from <= at) low = middle;
      else high = middle - 1;
    }
    const { from, to, left, width } = segments[low];
    return left + (to > from ? ((at - from) / (to - from)) * width : 0);
  }

  /** Return about `count` ticks with round distances from the start: `{at, left, offset}`, none within a gap. */
  ticks(count) {
    const worked = this.segments.reduce((sum, each) => sum + (each.idle ? 0 : each.to - each.from), 0);
    const step = niceStep(worked / Math.max(count, 1));
    const ticks = [];
    if (!(step > 0)) return ticks;
    const wanted = 1 / Math.max(count, 1) / 2;
    let last = Number.NEGATIVE_INFINITY;
    for (const segment of this.segments) {
      if (segment.idle) continue;
      const first = Math.max(Math.ceil((segment.from - this.start) / step - 1e-9), 0);
      for (let offset = first * step; this.start + offset <= segment.to + 1e-6; offset += step) {
        const left = this.place(this.start + offset);
        if (left - last < wanted) continue;
        ticks.push({ at: this.start + offset, left, offset });
        last = left;
      }
    }
    return ticks;
  }
}

/** Return the smallest of 1, 2, 5, 10, 20, … that is at least `value`. */
export function niceStep(value) {
  if (!(value > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of STEPS) if (step * power >= value - 1e-12) return step * power;
  return 10 * power;
}

/** Return round numbers that cover `low` to `high`, about `count` of them, for the axis of a plot. */
export function niceTicks(low, high, count) {
  const step = niceStep((high - low) / Math.max(count, 1));
  if (!step) return [low];
  const ticks = [];
  for (let i = Math.floor(low / step + 1e-9); i * step <= high + step * 1e-9; i += 1)
    ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}
