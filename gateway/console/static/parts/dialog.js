/** A modal dialog. The browser keeps the focus within it, and returns it when the dialog closes. */

import { html, useEffect, useId, useRef } from "./html.js";

/**
 * A dialog, open as long as it is shown.
 *
 * @param {{title: string, onClose: () => void, wide?: boolean, children?: any}} props
 */
export function Dialog({ title, onClose, wide = false, children }) {
  const node = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const heading = useId();
  useEffect(() => {
    node.current?.showModal();
    return () => node.current?.close();
  }, []);
  return html`<dialog ref=${node} class=${wide ? "wide-dialog" : ""} aria-labelledby=${heading} onClose=${onClose}>
    <div class="dialog-head">
      <h2 id=${heading}>${title}</h2>
      <button type="button" class="plain" aria-label="Close" onClick=${onClose}>✕</button>
    </div>
    ${children}
  </dialog>`;
}

/**
 * A question before a change that cannot be undone.
 *
 * @param {{title: string, text: any, action: string, onConfirm: () => void, onClose: () => void}} props
 */
export function Confirm({ title, text, action, onConfirm, onClose }) {
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <p>${text}</p>
    <div class="actions">
      <button type="button" onClick=${onClose}>Keep</button>
      <button type="button" class="danger" onClick=${() => (onConfirm(), onClose())}>${action}</button>
    </div>
  <//>`;
}
