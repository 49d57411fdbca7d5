/** Entry point of the console: opens the session, and renders the shell into `#console`. */

import { html, render } from "./parts/html.js";
import { openSession } from "./parts/session.js";
import { Shell } from "./parts/shell.js";

/** Import a page on first use. Names come from the table in lib/route.js. @param {string} name */
const importPage = (name) => import(`./pages/${name}.js`);

render(html`<${Shell} importPage=${importPage} />`, /** @type {HTMLElement} */ (document.getElementById("console")));
void openSession();
