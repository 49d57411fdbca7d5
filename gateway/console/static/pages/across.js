/** Comparisons of the protocols of an agent. */

import { html } from "../parts/html.js";
import { JobsPage } from "../parts/jobs.js";

export const title = () => "Across protocols";

/** @param {{route: import("../lib/route.js").Route, me: any}} props */
export default function AcrossJobs({ route, me }) {
  return html`<${JobsPage} route=${route} me=${me} kind="across" title="Across protocols" minAgents=${0}
    about="The same scenarios run through every protocol, and the results are compared. Without a choice, all agents take part."
    options=${[
      { name: "triggers", label: "Inputs", type: "select", value: "demo", choices: [["demo", "those of the demo agents"], ["sdk", "those of the SDK samples"], ["", "none"]] },
      { name: "only", label: "Only scenarios", type: "text", hint: "stream*" },
    ]} />`;
}
