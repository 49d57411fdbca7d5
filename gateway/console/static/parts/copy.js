/** A button that copies a text. */

import { announce } from "./announce.js";
import { html, useEffect, useState } from "./html.js";

/**
 * Copy a text to the clipboard. Throws if the browser refuses.
 *
 * @param {string} text
 */
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Without TLS, only localhost has navigator.clipboard.
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  if (!isCopied) throw new Error("The browser refused to copy");
}

/**
 * A button that copies. `text` may be a function, so that a large text is made only when it is copied.
 *
 * @param {{text: string | (() => string), label?: string, name?: string}} props `name` says what is copied.
 */
export function Copy({ text, label = "Copy", name }) {
  const [result, setResult] = useState("");
  useEffect(() => {
    const timer = result && setTimeout(() => setResult(""), 2000);
    return () => clearTimeout(timer);
  }, [result]);
  const handle = async () => {
    try {
      await copyText(typeof text === "function" ? text() : text);
      setResult("Copied");
    } catch {
      setResult("Not copied");
    }
    announce(`${name ?? label}: copied`);
  };
  return html`<button type="button" class="small" onClick=${handle} aria-label=${name && `Copy ${name}`}>
    ${result || label}
  </button>`;
}
