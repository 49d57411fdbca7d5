/** The form for an API key. */

import { html, useState } from "./html.js";
import { expectNavigation } from "./page.js";
import { session, setKey } from "./session.js";

/** @param {{autoFocus?: boolean, onDone?: () => void}} props */
export function KeyForm({ onDone }) {
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    const key = String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get("password")).trim();
    if (!key) return setProblem("Enter a key.");
    if (!/^[\x21-\x7e]+$/.test(key)) return setProblem("A key has no spaces, and only ASCII characters.");
    setBusy(true);
    setProblem("");
    expectNavigation();
    await setKey(key);
    setBusy(false);
    const { status, problem } = session.value;
    if (status === "ready") onDone?.();
    else setProblem(problem?.status === 401 ? `Not accepted: ${problem.message}` : (problem?.message ?? "Not accepted."));
  };
  return html`<form class="key-form" onSubmit=${submit} aria-label="API key">
    <label class="field visually-hidden" aria-hidden="true">Name
      <input name="username" autocomplete="username" tabindex="-1" value="babelgate" readonly /></label>
    <label class="field">API key or token
      <input type="password" name="password" autocomplete="current-password" required spellcheck="false"
        aria-describedby="key-problem key-help" aria-invalid=${problem ? "true" : "false"} /></label>
    <p id="key-problem" class="field-error" role="alert">${problem}</p>
    <p id="key-help" class="muted">The key stays in this tab: it is sent to this gateway in a header, and forgotten when the
      tab closes. The operator of the gateway issues keys: the command <code>babelgate keys new</code>, or the setting <code>keys</code>.</p>
    <button type="submit" class="primary" disabled=${isBusy}>${isBusy ? "Checking…" : "Use this key"}</button>
  </form>`;
}
