/** Runs all tests of this folder in one process, since `node --test` starts one for each file. */

import { readdirSync } from "node:fs";

const here = new URL(".", import.meta.url);
for (const name of readdirSync(here).sort()) if (name.endsWith(".test.js")) await import(new URL(name, here).href);
