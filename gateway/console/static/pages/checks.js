/** Conformance checks of agents. */

import { html } from "../parts/html.js";
import { JobsPage } from "../parts/jobs.js";
import { useGet } from "../parts/state.js";

export const title = () => "Checks";

/** @param {{route: import("../lib/route.js").Route, me: any}} props */
export default function Checks({ route, me }) {
  const protocols = useGet("protocols").value ?? [];
  /** @type {[string, string][]} */
  const choices = [["", "all that it speaks"], ...protocols.map((/** @type {any} */ each) => [each.name, each.title ?? each.name])];
  return html`<${JobsPage} route=${route} me=${me} kind="check" title="Checks"
    about="A check tests whether an agent conforms to the protocols it speaks, and shows the exchange behind each verdict."
    options=${[
      { name: "protocol", label: "Protocol", type: "select", choices },
      { name: "version", label: "Version", type: "text", hint: "1.0" },
      { name: "at", label: "Called", type: "select", value: "gateway", choices: [["gateway", "through this gateway"], ["server", "at its own server"]] },
      { name: "triggers", label: "Inputs", type: "select", choices: [["", "none"], ["demo", "those of the demo agents"], ["sdk", "those of the SDK samples"]] },
      { name: "trigger", label: "Your own inputs, one per line", type: "inputs", hint: "question=Book me a flight" },
      { name: "only", label: "Only requirements", type: "words", hint: "stream.*" },
    ]} />`;
}
