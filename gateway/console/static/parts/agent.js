/** What pages say of an agent: what is behind it, its health, its slots, its last check. */

import { get } from "../lib/api.js";
import { link } from "../lib/route.js";
import { formatDuration } from "../lib/time.js";
import { html, useEffect, useState } from "./html.js";
import { Status } from "./status.js";

const KINDS = { python: "Python", graph: "LangGraph graph", server: "server", program: "program" };

/** Titles of protocols by name. They do not change while the gateway runs. @type {Promise<Map<string, string>> | null} */
let titles = null;

/** Return the titles of protocols by name, once they are loaded. @returns {Map<string, string>} */
export function useProtocolTitles() {
  const [loaded, setLoaded] = useState(new Map());
  useEffect(() => {
    titles ??= get("protocols").then((value) => new Map(value.map((/** @type {any} */ { name, title }) => [name, title])));
    titles.then(setLoaded, () => (titles = null));
  }, []);
  return loaded;
}

/**
 * What answers for the agent: "A2A, 2 servers", "Python".
 *
 * @param {any} agent
 * @param {Map<string, string>} protocols Titles of protocols by name.
 */
export function behind({ kind, protocol, servers }, protocols) {
  const names = String(protocol ?? "").split(", ");
  const base = protocol ? names.map((name) => protocols.get(name) ?? name).join(", ") : (KINDS[/** @type {keyof typeof KINDS} */ (kind)] ?? kind ?? "–");
  return servers?.length > 1 ? `${base}, ${servers.length} servers` : base;
}

/**
 * The health of an agent as a word of `Status`, and its text.
 *
 * @param {any} agent
 * @returns {{word: string, text: string}}
 */
export function agentHealth({ broken, disabled, servers = [] }) {
  if (disabled) return { word: "disabled", text: disabled.reason ? `disabled: ${disabled.reason}` : "disabled" };
  if (broken) return { word: "broken", text: typeof broken === "string" ? `broken: ${broken}` : "broken" };
  const open = servers.filter((/** @type {any} */ each) => each.state === "open");
  const retries = open.map((/** @type {any} */ each) => each.retry_in_seconds).filter(Number.isFinite);
  const retry = retries.length ? `, retry in ${formatDuration(Math.ceil(Math.min(...retries)))}` : "";
  if (open.length && open.length === servers.length) return { word: "open", text: `not reached${retry}` };
  if (open.length) return { word: "degraded", text: `${open.length} of ${servers.length} servers not reached${retry}` };
  const failing = servers.filter((/** @type {any} */ each) => each.state === "failing").length;
  if (failing) return { word: "failing", text: servers.length > 1 ? `last call of ${failing} of ${servers.length} servers failed` : "last call failed" };
  return { word: "ok", text: "ok" };
}

/** The slots of an agent: "3 of 4 used, 2 wait". @param {any} slots */
export function slotsText(slots) {
  if (!slots) return "–";
  const used = slots.limit ? `${slots.used} of ${slots.limit} used` : `${slots.used} used`;
  return slots.waiting ? html`${used}, <span class="tone-loss">${slots.waiting} wait</span>` : used;
}

/** The newest check of an agent. @param {any} agent */
export function lastCheck({ checks }) {
  const newest = checks?.[0];
  if (!newest) return html`<span class="muted">never</span>`;
  const { job, passed, failed } = newest;
  return html`<a href=${link(["checks", job])}><${Status} word=${failed ? "failed" : "passed"} text="${passed} of ${passed + failed}" /></a>`;
}
