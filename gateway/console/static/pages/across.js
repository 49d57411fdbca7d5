/** Comparisons of the protocols of an agent. */

import { html } from "../parts/html.js";
import { JobsPage } from "../parts/jobs.js";

export const title = () => "Across protocols";

/** @param {{route: import("../lib/route.js").Route, me: any}} props */
export default function AcrossJobs({ route, me }) {
  return html`<${JobsPage} route=${route} me=${me} kind="across" title="Across protocols"
    about="The same scenarios run through every protocol, and the results are compared."
    options=${[
      { name: "triggers", label: "Inputs", type: "select", choices: [["", "none"], ["demo", "those of the demo agents"], ["sdk", "those of the SDK samples"]] },
      { name: "trigger", label: "Your own inputs, one per line", type: "inputs", hint: "question=Book me a flight" },
      { name: "only", label: "Only scenarios", type: "words", hint: "stream*" },
    ]} />`;
}
