/** Page for an address that is none of the console. */

import { html } from "../parts/html.js";
import { Page } from "../parts/page.js";
import { link } from "../lib/route.js";

export const title = () => "Not found";

/** @param {{route: import("../lib/route.js").Route}} props */
export default function NotFound({ route }) {
  return html`<${Page} title="Not found" status="error">
    <p>The console has no page <code>#/${route.path}</code>.</p>
    <p><a href=${link(["agents"])}>Agents</a> is the first page.</p>
  <//>`;
}
