/** Benchmarks of agents. */

import { html } from "../parts/html.js";
import { JobsPage } from "../parts/jobs.js";

export const title = () => "Bench";

/** @param {{route: import("../lib/route.js").Route, me: any}} props */
export default function BenchJobs({ route, me }) {
  return html`<${JobsPage} route=${route} me=${me} kind="bench" title="Bench" isMulti
    about="A bench gives the same tasks to every agent, several times, and compares success, time, tokens and cost."
    options=${[
      { name: "suite", label: "Suite", type: "select", value: "smoke", choices: [["smoke", "smoke"], ["files", "files"]] },
      { name: "repeat", label: "Attempts per task", type: "number", value: "3" },
      { name: "concurrency", label: "Concurrent attempts", type: "number", value: "4" },
      { name: "task", label: "Only tasks", type: "words" },
    ]} />`;
}
