/** The help dialog: keys, and where to find things. */

import { Dialog } from "./dialog.js";
import { html, useStore } from "./html.js";
import { preferences, setPreferences } from "./session.js";

const KEYS = [
  ["?", "this help"],
  ["/", "to the filter of the page"],
  ["g a", "agents"],
  ["g t", "threads"],
  ["g r", "runs"],
  ["g c", "checks"],
  ["g b", "bench"],
  ["g h", "health"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["f", "follow a running run"],
  ["Ctrl Enter", "send the message or the answer"],
];

/** @param {{onClose: () => void, version?: string}} props */
export function Help({ onClose, version }) {
  const { singleKeys } = useStore(preferences);
  return html`<${Dialog} title="Help" onClose=${onClose}>
    <table class="plain-table" aria-label="Keys">
      <tbody>${KEYS.map(
        ([keys, text]) => html`<tr>
          <th scope="row">${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</th><td>${text}</td>
        </tr>`,
      )}</tbody>
    </table>
    <p><label class="check"><input type="checkbox" checked=${singleKeys}
      onChange=${(/** @type {any} */ event) => setPreferences({ singleKeys: event.target.checked })} />
      Enable single-key shortcuts</label></p>
    <p class="muted">This console belongs to this gateway${version && `, Babelgate ${version}`}. It sends no data to other
      hosts, and needs no internet connection.</p>
  <//>`;
}
