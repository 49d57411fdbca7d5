/**
 * First module of the console: sends the requests of the first page while the browser loads the other modules.
 *
 * It imports no more than that needs. The page itself finds the responses in lib/api.js.
 */

import { configure, prefetch } from "./lib/api.js";
import { HOME, importPage, parseRoute } from "./lib/route.js";
import { readKey } from "./lib/storage.js";

const { page } = parseRoute(location.hash);
configure({ base: document.baseURI, key: readKey() });
prefetch("me");
if (page === HOME) prefetch("agents");
void importPage(page ?? "not-found");
