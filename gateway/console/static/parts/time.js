/** Times: relative in lists, with the exact time on focus and on the pointer. */

import { formatClock, formatExact, formatRelative } from "../lib/time.js";
import { html, useTick } from "./html.js";

/**
 * A relative time that stays true. The row or the line that has the focus shows the exact time.
 *
 * @param {{at: string | null | undefined}} props
 */
export function RelativeTime({ at }) {
  const now = useTick();
  if (!at) return html`<span>–</span>`;
  return html`<time class="relative" datetime=${at} title=${formatExact(at)} data-exact=${formatExact(at)}>
    <span>${formatRelative(at, now)}</span>
  </time>`;
}

/** A time of day, with its date on the pointer. @param {{at: string | null | undefined, milliseconds?: boolean}} props */
export function Clock({ at, milliseconds = false }) {
  if (!at) return html`<span>–</span>`;
  return html`<time datetime=${at} title=${formatExact(at)}>${formatClock(at, milliseconds)}</time>`;
}
