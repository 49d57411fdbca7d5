/** Entry point of the console: opens the session, and renders the shell into `#console`. */

import { importPage } from "./lib/pages.js";
import { parseRoute } from "./lib/route.js";
import { html, render } from "./parts/html.js";
import { openSession } from "./parts/session.js";
import { Shell } from "./parts/shell.js";

const { page } = parseRoute(location.hash);
const first = Promise.allSettled([openSession(), importPage(page ?? "not-found")]);
// What has arrived while the modules loaded is in the first rendering; anything else is awaited by the shell.
await Promise.race([first, new Promise((resolve) => setTimeout(resolve))]);
render(html`<${Shell} />`, /** @type {HTMLElement} */ (document.getElementById("console")));
