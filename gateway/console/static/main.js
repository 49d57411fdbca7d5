/** Entry point of the console: opens the session, and renders the shell into `#console`. */

import { settleEarly } from "./lib/api.js";
import { importPage, parseRoute } from "./lib/route.js";
import { html, render } from "./parts/html.js";
import { openSession } from "./parts/session.js";
import { Shell } from "./parts/shell.js";

/** Milliseconds for which the first rendering waits for its data. Chosen: gray rows would appear later. */
const PATIENCE = 100;

const { page } = parseRoute(location.hash);
const first = Promise.allSettled([openSession(), importPage(page ?? "not-found"), settleEarly()]);
// Mostly, the data has arrived while the modules loaded. To render the page without it first takes longer.
await Promise.race([first, new Promise((resolve) => setTimeout(resolve, PATIENCE))]);
render(html`<${Shell} />`, /** @type {HTMLElement} */ (document.getElementById("console")));
