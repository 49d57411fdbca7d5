// Entry point of the console: renders the page into `#console`.

import { h, render } from './vendor/preact.js';
import { useEffect, useState } from './vendor/hooks.js';
import htm from './vendor/htm.js';

const html = htm.bind(h);
const API = new URL('api/v1/', document.baseURI);

function Console() {
  const [me, setMe] = useState(null);
  useEffect(() => {
    fetch(new URL('me', API)).then((response) => response.json()).then(setMe);
  }, []);
  return html`<main data-status=${me ? 'ready' : 'loading'}>
    <h1>Babelgate</h1>
    <pre>${me ? JSON.stringify(me, null, 2) : ''}</pre>
  </main>`;
}

render(html`<${Console} />`, document.getElementById('console'));
