/** A request as it is sent, ready to copy: as curl and as JSON. */

import { gatewayBase, hasKey } from "../lib/api.js";
import { Copy } from "./copy.js";
import { html } from "./html.js";
import { Json } from "./json.js";

/**
 * The command that sends a request with curl. The key is named, and never shown.
 *
 * @param {{method: string, path: string, body?: unknown, headers?: Record<string, string>}} request
 */
export function curlOf({ method, path, body, headers = {} }) {
  const lines = [`curl -s${method === "GET" ? "" : ` -X ${method}`} ${quote(gatewayBase() + path)}`];
  if (hasKey()) lines.push('-H "Authorization: Bearer $BABELGATE_KEY"');
  const all = { ...(body === undefined || body === null ? {} : { "Content-Type": "application/json" }), ...headers };
  for (const [name, value] of Object.entries(all)) lines.push(`-H ${quote(`${name}: ${value}`)}`);
  if (body !== undefined && body !== null) lines.push(`-d ${quote(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

/** Quote a word for a POSIX shell. @param {string} text */
const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/**
 * @param {{title: string, request: {method: string, path: string, body: any}, children?: any}} props
 */
export function RequestView({ title, request, children }) {
  return html`<section aria-label=${title}>
    <h3>${title}</h3>${children}
    <p class="actions"><code>${request.method} ${request.path}</code> <${Copy} text=${() => curlOf(request)} label="Copy as curl" name="${title} as curl" /></p>
    ${request.body !== undefined && html`<${Json} value=${request.body} label="Body of the request" open=${4} />`}
  </section>`;
}
