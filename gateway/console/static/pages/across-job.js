/** One comparison of protocols: scenarios by protocol, pairs, and each difference with its exchanges. */

import { count } from "../lib/time.js";
import { html, useState } from "../parts/html.js";
import { JobPage } from "../parts/job.js";
import { Legend, MARKS, Matrix } from "../parts/matrix.js";
import { Mark } from "../parts/status.js";
import { ExchangeView } from "../parts/wire.js";

/** @param {import("../lib/route.js").Route} route */
export const title = (route) => `Across ${route.params.job.slice(-8)}`;

/** @param {{route: import("../lib/route.js").Route}} props */
export default function AcrossJob({ route }) {
  return html`<${JobPage} route=${route} name="Comparison">${(/** @type {any} */ job) => html`<${Report} report=${job.result} />`}<//>`;
}

/** @param {{report: any}} props */
function Report({ report }) {
  const columns = Object.entries(report.protocols).map(([id, name]) => ({ id, title: name }));
  const rows = Object.entries(report.scenarios).map(([id, scenario]) => ({ id, title: id, about: /** @type {any} */ (scenario).skipped || /** @type {any} */ (scenario).about }));
  const undeclared = report.findings.filter((/** @type {any} */ each) => !each.declared && !each.known).length;
  return html`
    <p><${Mark} tone=${report.same ? "ok" : "failed"} glyph=${report.same ? "✓" : "✕"}>${report.same ? "All protocols agree" : `The protocols disagree: ${count(undeclared, "undeclared difference")}`}<//></p>
    <h2>Scenarios, run over every protocol</h2>
    <${Matrix} label="Scenarios by protocol" corner="Scenario" rows=${rows} columns=${columns} cell=${(/** @type {string} */ row, /** @type {string} */ column) => scenarioCell(report.scenarios[row], column)} />
    <${Legend} marks=${Object.keys(MARKS)} />
    <${Lacks} scenarios=${report.scenarios} protocols=${report.protocols} />
    <h2>Differences</h2>
    <${Findings} findings=${report.findings} protocols=${report.protocols} />
    <h2>Pairs of protocols</h2>
    <p class="muted">Results compared between runs. Each protocol started its own run.</p>
    <${Square} label="Pairs of protocols" square=${report.pairs} columns=${columns} />
    ${Object.keys(report.shared ?? {}).length > 0 && html`<h2>The same run, read through another protocol</h2>
      <p class="muted">Started over the protocol of the row, read over the protocol of the column.</p>
      <${Square} label="Started over the row, read over the column" square=${report.shared} columns=${columns} />`}
    ${report.stale?.length > 0 && html`<p class="tone-loss">Baseline entries that match no difference: ${report.stale.join(", ")}</p>`}`;
}

/** @param {any} scenario @param {string} protocol */
function scenarioCell(scenario, protocol) {
  const [glyph, word, tone] = MARKS[scenario.marks[protocol]] ?? MARKS["?"];
  const lack = scenario.lacks[protocol];
  return { glyph, tone, word: lack ? `${word}: ${lack}` : word };
}

/** @param {{scenarios: any, protocols: any}} props */
function Lacks({ scenarios, protocols }) {
  /** @type {Map<string, string[]>} */
  const reasons = new Map();
  for (const [name, { lacks }] of Object.entries(scenarios)) {
    for (const [protocol, why] of Object.entries(lacks)) reasons.set(`${protocols[protocol]}\n${why}`, [...(reasons.get(`${protocols[protocol]}\n${why}`) ?? []), name]);
  }
  if (!reasons.size) return null;
  return html`<details><summary>Why a protocol does not have a scenario (${reasons.size})</summary>
    <ul>${[...reasons].map(([key, names]) => html`<li>${key.split("\n")[0]}, ${names.join(", ")}: ${key.split("\n")[1]}</li>`)}</ul></details>`;
}

/** @param {{label: string, square: any, columns: {id: string, title: any}[]}} props */
function Square({ label, square, columns }) {
  const rows = columns.filter(({ id }) => square[id] || columns.some((each) => square[each.id]?.[id]));
  const used = columns.filter(({ id }) => rows.some((row) => cellOf(square, row.id, id)));
  return html`<${Matrix} label=${label} rows=${rows} columns=${used} cell=${(/** @type {string} */ row, /** @type {string} */ column) => {
    const counts = cellOf(square, row, column);
    if (!counts) return null;
    const { compared, declared, undeclared } = counts;
    const words = `${compared} compared, ${declared} declared, ${undeclared} undeclared`;
    if (undeclared) return { glyph: "✕", tone: "failed", word: words, text: `${undeclared} of ${compared}` };
    if (declared) return { glyph: "◐", tone: "loss", word: words, text: `${declared} of ${compared}` };
    return { glyph: "✓", tone: "ok", word: words, text: String(compared) };
  }} />`;
}

/** Return the counts of a pair; pairs of own runs are listed once. @param {any} square @param {string} row @param {string} column */
const cellOf = (square, row, column) => square[row]?.[column] ?? (row === column ? undefined : square[column]?.[row] && !square[row]?.[column] ? square[column][row] : undefined);

/** @param {{findings: any[], protocols: any}} props */
function Findings({ findings, protocols }) {
  if (!findings.length) return html`<p class="muted">There is no difference.</p>`;
  const rank = (/** @type {any} */ each) => (each.declared || each.known ? 1 : 0);
  const sorted = [...findings].sort((one, other) => rank(one) - rank(other));
  return html`<div class="results">${sorted.map((finding) => html`<${Finding} key=${finding.id} finding=${finding} protocols=${protocols} />`)}</div>`;
}

/** @param {{finding: any, protocols: any}} props */
function Finding({ finding, protocols }) {
  const [open, setOpen] = useState(false);
  const { scenario, moment, aspect, declared, known, sides } = finding;
  const isBad = !declared && !known;
  return html`<details class="result" data-finding=${isBad ? "undeclared" : "declared"} onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
    <summary><span class="tone-${isBad ? "failed" : "loss"}"><span aria-hidden="true">${isBad ? "✕" : "◐"}</span> ${isBad ? "undeclared" : known ? "known" : "declared"}</span>
      <strong>${scenario}</strong> ${aspect} <span class="muted">of the ${moment}, ${finding["same run"] ? "one run" : "own runs"}:${" "}
      ${sides.map((/** @type {any} */ side) => protocols[side.protocol]).join(" and ")}</span>${(declared || known) && html` <span class="result-text">${declared || known}</span>`}</summary>
    ${open && html`<div class="exchange-sides">${sides.map((/** @type {any} */ side) => html`<div>
      <p class="side-title">${protocols[side.protocol]}</p><pre>${side.value}</pre>
      ${side.exchanges.map((/** @type {any} */ exchange) => html`<${ExchangeView} key=${exchange.number} exchange=${exchange} />`)}</div>`)}</div>`}
  </details>`;
}
