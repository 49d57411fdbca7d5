/** The frame of a page: main element with its state, heading, actions. */

import { html, useEffect, useRef } from "./html.js";

let hasNavigated = false;

/** Record that the next page is shown after a navigation, so that its heading takes the focus. */
export const expectNavigation = () => {
  hasNavigated = true;
};

/**
 * A page. `status` is the contract of tests: loading, empty, live, paused, reconnecting, stale, error or ready.
 *
 * @param {{title: any, status?: string, label?: string, lead?: any, actions?: any, narrow?: boolean, children?: any}} props
 */
export function Page({ title, status = "ready", label, lead, actions, children }) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (hasNavigated) heading.current?.focus();
    hasNavigated = false;
  }, []);
  return html`<main id="main" data-status=${status} aria-busy=${status === "loading"} aria-label=${label}>
    <div class="page-head">
      <div class="page-title">
        <h1 tabindex="-1" ref=${heading}>${title}</h1>
        ${lead && html`<div class="lead">${lead}</div>`}
      </div>
      ${actions && html`<div class="actions">${actions}</div>`}
    </div>
    ${children}
  </main>`;
}
