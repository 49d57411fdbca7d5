/** The frame of all pages: header, navigation, help, the switch of the color scheme, and the key form. */

import { findPage, importPage, link, parseRoute } from "../lib/route.js";
import { announce, Announcer } from "./announce.js";
import { Boundary } from "./boundary.js";
import { html, shortcuts, useEffect, useKeys, useMemo, useState, useStore } from "./html.js";
import { expectNavigation, Page } from "./page.js";
import { loadMe, preferences, session, setPreferences } from "./session.js";
import { asProblem, Late, Loading, ProblemNote } from "./state.js";

/** Pages of the navigation: path, name, second key after `g`, and the right that the caller needs. */
const NAVIGATION = [
  { path: "agents", name: "Agents", key: "a" },
  { path: "threads", name: "Threads", key: "t" },
  { path: "runs", name: "Runs", key: "r" },
  { path: "request", name: "Request" },
  { path: "checks", name: "Checks", key: "c", right: "jobs" },
  { path: "across", name: "Across", right: "jobs" },
  { path: "bench", name: "Bench", key: "b", right: "jobs" },
  { path: "health", name: "Health", key: "h" },
  { path: "settings", name: "Settings", right: "settings" },
];

/** @returns {import("../lib/route.js").Route} */
function useRoute() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const update = () => setHash(location.hash);
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return useMemo(() => parseRoute(hash), [hash]);
}

/** The console. */
export function Shell() {
  const route = useRoute();
  const state = useStore(session);
  const { scheme, singleKeys } = useStore(preferences);
  const [isHelpOpen, setHelpOpen] = useState(false);
  useEffect(() => {
    document.documentElement.dataset.scheme = scheme;
    shortcuts.isEnabled = singleKeys;
  }, [scheme, singleKeys]);
  useGlobalKeys(() => setHelpOpen(true));
  const me = state.me;
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <${Header} route=${route} me=${me} onHelp=${() => setHelpOpen(true)} scheme=${scheme} />
    <${Content} route=${route} state=${state} />
    <${Announcer} />
    ${isHelpOpen && html`<${Late} name="Help" load=${() => import("./help.js")} version=${me?.version} onClose=${() => setHelpOpen(false)} />`}`;
}

/** The link's hash is not a route, so it moves the focus itself. @param {Event} event */
function skip(event) {
  event.preventDefault();
  /** @type {HTMLElement | null} */ (document.querySelector("main h1"))?.focus();
}

/** @param {() => void} openHelp */
function useGlobalKeys(openHelp) {
  /** @type {Record<string, () => void>} */
  const bindings = {
    "?": openHelp,
    "/": () => /** @type {HTMLElement | null} */ (document.querySelector("main [data-filter]"))?.focus(),
  };
  for (const { path, key } of NAVIGATION) if (key) bindings[`g ${key}`] = () => void (location.hash = link([path]));
  useKeys(bindings);
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const handle = (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      const isEditable = target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
      if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
      const { key, ctrlKey, metaKey, altKey, timeStamp } = event;
      const action = shortcuts.find({ key, ctrlKey, metaKey, altKey, isEditable, at: timeStamp });
      if (!action) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", handle);
    return () => removeEventListener("keydown", handle);
  }, []);
}

/** @param {{route: import("../lib/route.js").Route, me: import("./session.js").Me | null, onHelp: () => void, scheme: string}} props */
function Header({ route, me, onHelp, scheme }) {
  const section = route.path.split("/")[0];
  const shown = NAVIGATION.filter(({ right }) => !right || !me || me.can?.[right] !== false);
  return html`<header class="top">
    <a class="brand" href=${link(["agents"])}>Babelgate</a>
    <nav aria-label="Pages"><ul>${shown.map(
      ({ path, name }) => html`<li><a href=${link([path])} aria-current=${path === section ? "page" : null}>${name}</a></li>`,
    )}</ul></nav>
    <div class="top-tools">
      ${me && html`<a class="who" href=${link(["key"])} title="The caller that the gateway sees">${me.owner}${me.operator && ", operator"}</a>`}
      <label><span class="visually-hidden">Color scheme</span>
        <select class="small" value=${scheme} onChange=${(/** @type {any} */ event) => setPreferences({ scheme: event.target.value })}>
          <option value="system">System</option><option value="light">Light</option><option value="dark">Dark</option>
        </select></label>
      <button type="button" class="small" onClick=${onHelp} aria-label="Help">?</button>
    </div>
  </header>`;
}

/** @param {{route: import("../lib/route.js").Route, state: import("./session.js").Session}} props */
function Content({ route, state }) {
  if (state.status === "locked" && route.page !== "key") {
    return html`<${Page} title="This gateway needs an API key" status="error"><${Late} name="KeyForm" load=${() => import("./key-form.js")} /><//>`;
  }
  if (state.status === "error") {
    return html`<${Page} title="The console cannot reach its gateway" status="error">
      <${ProblemNote} problem=${state.problem} retry=${loadMe} /><//>`;
  }
  if (state.status === "loading") return html`<${Page} title="Babelgate" status="loading"><${Loading} /><//>`;
  if (route.page === null) return html`<${PageModule} key="not-found" name="not-found" route=${route} me=${state.me} />`;
  return html`<${PageModule} key=${route.path} name=${route.page} route=${route} me=${state.me} />`;
}

/**
 * A page, whose module is imported on first use.
 *
 * @param {{name: string, route: import("../lib/route.js").Route, me: any}} props
 */
function PageModule({ name, route, me }) {
  const [state, setState] = useState(() => ({ module: findPage(name), problem: /** @type {any} */ (null), turn: 0 }));
  useEffect(() => {
    if (state.module) return;
    importPage(name).then(
      (module) => setState((old) => ({ ...old, module, problem: null })),
      (error) => setState((old) => ({ ...old, problem: asProblem(error) })),
    );
  }, [name, state.turn]);
  useEffect(
    () => () => {
      expectNavigation();
      announce("");
    },
    [name],
  );
  const title = state.module?.title?.(route) ?? "";
  useEffect(() => {
    document.title = title ? `${title} – Babelgate` : "Babelgate";
  }, [title]);
  if (state.problem) {
    return html`<${Page} title="This page failed to load" status="error">
      <${ProblemNote} problem=${state.problem} retry=${() => setState((old) => ({ ...old, turn: old.turn + 1 }))} /><//>`;
  }
  if (!state.module) return html`<main id="main" data-status="loading"><${Loading} /></main>`;
  return html`<${Boundary} name=${name}><${state.module.default} route=${route} me=${me} /><//>`;
}
