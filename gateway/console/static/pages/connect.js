/** Page of snippets: how a client of each protocol calls the agent. */

import { gatewayBase } from "../lib/api.js";
import { link } from "../lib/route.js";
import { Copy } from "../parts/copy.js";
import { html, useState } from "../parts/html.js";
import { Page } from "../parts/page.js";
import { Empty, Loaded, useGet } from "../parts/state.js";
import { Tabs } from "../parts/tabs.js";

/** @param {import("../lib/route.js").Route} route */
export const title = ({ params }) => `Connect to ${params.agent}`;

/** @param {{route: import("../lib/route.js").Route, me: any}} props */
export default function Connect({ route, me }) {
  const name = route.params.agent;
  const load = useGet(`agents/${encodeURIComponent(name)}/snippets`);
  const [chosen, setChosen] = useState(route.query.protocol ?? "");
  /** @type {any[]} */
  const snippets = Array.isArray(load.value) ? load.value : (load.value?.items ?? []);
  const protocols = [...new Set(snippets.map(({ protocol }) => protocol))];
  const selected = protocols.includes(chosen) ? chosen : protocols[0];
  const status = load.value ? (snippets.length ? "ready" : "empty") : load.status;
  return html`<${Page} title=${html`Connect to <a href=${link(["agents", name])}>${name}</a>`} status=${status}
      actions=${html`<a class="button" href=${link(["agents", name, "try"])}>Try</a>`}>
    <p>Any client of these protocols can call the agent. The base URL of the gateway is <code>${gatewayBase()}</code> <${Copy} text=${gatewayBase()} name="base URL" /></p>
    ${me?.keyed && html`<p class="muted">Set <code>BABELGATE_KEY</code> to your API key before you run a snippet: <code>export BABELGATE_KEY=…</code></p>`}
    <${Loaded} load=${load}>${() => snippets.length === 0
      ? html`<${Empty} text="There are no snippets for this agent."><a href=${link(["request"], { agent: name })}>Send a request</a> of any protocol instead.<//>`
      : html`<${Tabs} label="Protocols" selected=${selected} onSelect=${setChosen} tabs=${protocols.map((id) => ({ id, title: titleOf(snippets, id) }))}>
          ${snippets.filter(({ protocol }) => protocol === selected).map((snippet) => html`<${Snippet} key=${`${snippet.language}-${snippet.title}`} ...${snippet} />`)}
        <//>`}<//>
  <//>`;
}

/** @param {any[]} snippets @param {string} protocol */
const titleOf = (snippets, protocol) => snippets.find((each) => each.protocol === protocol)?.protocol_title ?? protocol;

/** @param {{title: string, language: string, text: string}} props */
function Snippet({ title, language, text }) {
  return html`<section class="snippet" aria-label="${title}, ${language}">
    <div class="page-head"><h2>${title} <span class="muted">${language}</span></h2><${Copy} text=${text} name="${title}, ${language}" label="Copy" /></div>
    <pre tabindex="0"><code>${text}</code></pre>
  </section>`;
}
