/** A request as it is sent, ready to copy: as curl and as JSON. */

import { gatewayBase, hasKey } from "../lib/api.js";
import { curl } from "../lib/curl.js";
import { Copy } from "./copy.js";
import { html } from "./html.js";
import { Json } from "./json.js";

/**
 * The command that sends a request of JSON with curl. The key is named, and never shown.
 *
 * @param {{method: string, path: string, body?: unknown, headers?: Record<string, string>}} request
 */
export function curlOf({ method, path, body, headers = {} }) {
  const text = body === undefined || body === null ? "" : JSON.stringify(body);
  const all = { ...(text && { "Content-Type": "application/json" }), ...headers };
  return curl({ method, url: gatewayBase() + path, headers: Object.entries(all), body: text, keyed: hasKey() });
}

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
