/** Catches an error of a component, so that the header and the navigation survive it. */

import { Component } from "../vendor/preact.js";
import { html } from "./html.js";
import { Page } from "./page.js";
import { asProblem, ProblemNote } from "./state.js";

/** Shows its children, or their error with Retry. */
export class Boundary extends Component {
  constructor() {
    super();
    this.state = { problem: null };
  }

  /** @param {unknown} error */
  componentDidCatch(error) {
    console.error(error);
    this.setState({ problem: asProblem(error) });
  }

  render() {
    const { problem } = this.state;
    if (!problem) return this.props.children;
    return html`<${Page} title="This page failed" status="error">
      <${ProblemNote} problem=${problem} retry=${() => this.setState({ problem: null })} /><//>`;
  }
}
