/** Page of snippets: how a client of each protocol calls the agent. */

import { gatewayBase } from "../lib/api.js";
import { link } from "../lib/route.js";
import { useProtocolTitles } from "../parts/agent.js";
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
  const titles = useProtocolTitles();
  const [chosen, setChosen] = useState(route.query.protocol ?? "");
  /** @type {any[]} */
  const snippets = Array.isArray(load.value) ? load.value : (load.value?.items ?? []);
  const protocols = [...new Set(snippets.map(({ protocol }) => protocol))];
  const selected = protocols.includes(chosen) ? chosen : protocols[0];
  const status = load.value ? (snippets.length ? "ready" : "empty") : load.status;
  return html`<${Page} title=${html`Connect to <a href=${link(["agents", name])}>${name}</a>`} status=${status}
      actions=${html`<a class="button" href=${link(["agents", name, "try"])}>Try</a>`}>
    <p>Any client of these protocols can call the agent. The base URL of the gateway:</p>
    <p class="actions"><code>${gatewayBase()}</code> <${Copy} text=${gatewayBase()} name="base URL" /></p>
    <p>${me?.keyed
      ? html`The snippets read your API key from the environment: <code>export BABELGATE_KEY=…</code>`
      : html`The snippets read an API key from the environment. This gateway needs none, so any value will do: <code>export BABELGATE_KEY=none</code>`}</p>
    <${Loaded} load=${load}>${() => snippets.length === 0
      ? html`<${Empty} text="There are no snippets for this agent."><a href=${link(["request"], { agent: name })}>Send a request</a> of any protocol instead.<//>`
      : html`<${Tabs} label="Protocols" selected=${selected} onSelect=${setChosen} tabs=${protocols.map((id) => ({ id, title: titles.get(id) ?? id }))}>
          ${snippets.filter(({ protocol }) => protocol === selected).map((snippet) => html`<${Snippet} key=${`${snippet.language}-${snippet.title}`} ...${snippet} />`)}
        <//>`}<//>
  <//>`;
}

/** Names of languages. @type {Record<string, string>} */
const LANGUAGES = { shell: "Shell", python: "Python", typescript: "TypeScript", javascript: "JavaScript" };

/** @param {{title: string, language: string, text: string}} props */
function Snippet({ title, language: id, text }) {
  const language = LANGUAGES[id] ?? id;
  return html`<section class="snippet" aria-label="${title}, ${language}">
    <div class="page-head"><h2>${title} <span class="muted">${language}</span></h2><${Copy} text=${text} name="${title}, ${language}" label="Copy" /></div>
    <pre tabindex="0"><code>${text}</code></pre>
  </section>`;
}
