/** Page of the API key: who the caller is, and the form to use another key. */

import { html, useStore } from "../parts/html.js";
import { KeyForm } from "../parts/key-form.js";
import { Page } from "../parts/page.js";
import { hasKey, session, setKey } from "../parts/session.js";

export const title = () => "API key";

export default function Key() {
  const { me } = useStore(session);
  return html`<${Page} title="API key" status="ready">
    ${me && html`<dl class="facts" aria-label="Caller">
      <div><dt>Caller</dt><dd>${me.subject || me.owner}</dd></div>
      <div><dt>Owner of its data</dt><dd>${me.owner}</dd></div>
      ${me.groups?.length > 0 && html`<div><dt>Groups</dt><dd>${me.groups.join(", ")}</dd></div>`}
      <div><dt>Operator</dt><dd>${me.operator ? "yes: sees when and how long other owners' runs ran, but not their content" : "no"}</dd></div>
      <div><dt>Gateway</dt><dd>${me.keyed ? "needs a key" : "needs no key: all callers have the same rights"}</dd></div>
    </dl>`}
    ${hasKey() && html`<p><button type="button" onClick=${() => setKey(null)}>Forget the key of this tab</button></p>`}
    ${(me?.keyed || !me) && html`<h2>${me ? "Use another key" : "Use a key"}</h2><${KeyForm} />`}
  <//>`;
}
