/** A question of an agent, with a form for its answer. An answered question stays visible, disabled. */

import { textOf } from "../lib/conversation.js";
import { initialValue, planForm } from "../lib/schema.js";
import { errorText, validate } from "../lib/validate.js";
import { errorsByPath, FormField, hasNotJson, JsonField } from "./form.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "./html.js";
import { Json } from "./json.js";
import { Markdown } from "./markdown.js";
import { Clock } from "./time.js";

/** Words for the kinds of questions. @type {Record<string, string>} */
const KINDS = { input: "a question", approval: "for approval", auth: "for a login" };
/** Answer of a question without a schema. */
const ANY = { kind: "text", format: "long", title: "Answer", description: "", isRequired: true, isNullable: false, schema: true };
/** Id of the question that this page answers at the moment. */
let answering = "";
/** Answer in the editor. */
const JSON_FIELD = { ...ANY, kind: "json" };

/**
 * @typedef {object} QuestionProps
 * @property {string} id
 * @property {string} kind
 * @property {any} message A message, or a text.
 * @property {any} value What the question is about.
 * @property {any} schema
 * @property {string} at
 * @property {{action: string, value: any, at: string} | null} answer
 * @property {boolean} [canDecline]
 * @property {string} [position] Such as "1 of 2".
 * @property {boolean} [isClosed] It can no longer be answered, because its run was cancelled.
 * @property {(answer: {value: any} | {decline: true}) => Promise<boolean>} onAnswer
 */

/** @param {QuestionProps} props */
export function Question(props) {
  const { id, kind, message, value, at, answer, position } = props;
  const heading = useId();
  const node = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    // The form with the focus is gone: the focus stays with its question.
    if (answer && document.activeElement === document.body && answering === id) node.current?.focus();
    if (answer && answering === id) answering = "";
  }, [answer]);
  const tool = callOf(value, message);
  return html`<section class="question" aria-labelledby=${heading} data-question=${id} data-answered=${answer ? answer.action : "no"}>
    <h2 id=${heading} tabindex="-1" ref=${node}><span class="tone-asks"><span aria-hidden="true">?</span> ${tool ? "calls your tool" : "asks"}</span>
      <span class="muted"> ${[tool ? tool.name : (KINDS[kind] ?? kind), position].filter(Boolean).join(", ")}, <${Clock} at=${at} /></span></h2>
    ${tool
      ? html`<${Json} value=${tool.arguments} label="Arguments" open=${3} />`
      : html`<${Markdown} text=${typeof message === "string" ? message : textOf(message?.parts ?? [])} />
        ${value !== null && value !== undefined && html`<${Json} value=${value} label="Value of the question" open=${3} />`}`}
    ${answer ? html`<${Answered} ...${props} />` : html`<${AnswerForm} ...${props} tool=${tool} onAnswer=${(/** @type {any} */ given) => ((answering = id), props.onAnswer(given))} />`}
  </section>`;
}

/** The call of a caller's tool that a question stands for. @param {any} value @param {any} message */
function callOf(value, message) {
  if (typeof value?.name !== "string" || !("arguments" in value)) return null;
  const text = typeof message === "string" ? message : textOf(message?.parts ?? []);
  return text.startsWith(`${value.name}(`) ? { name: value.name, arguments: value.arguments } : null;
}

/** @param {QuestionProps} props */
function Answered({ answer, schema }) {
  const { action, value } = /** @type {NonNullable<QuestionProps["answer"]>} */ (answer);
  const field = useMemo(() => planForm(schema), [schema]);
  if (action !== "answer") {
    return html`<p class="muted">${action === "decline" ? "Declined" : "No longer open"}, <${Clock} at=${answer?.at} /></p>`;
  }
  const isFormed = schema && field.kind !== "json" && validate(schema, value).length === 0;
  return html`<div class="answered"><p class="muted">Answered <${Clock} at=${answer?.at} /></p>
    ${isFormed
      ? html`<${FormField} field=${field} value=${value} onChange=${() => {}} errors=${new Map()} path="" disabled />`
      : typeof value === "string"
        ? html`<p class="words">${value}</p>`
        : html`<${Json} value=${value} label="Answer" open=${3} />`}
  </div>`;
}

/** @param {QuestionProps & {tool: any}} props */
function AnswerForm({ schema, tool, canDecline = true, isClosed = false, onAnswer }) {
  const planned = useMemo(() => (schema ? planForm(schema) : tool ? { ...ANY, title: "Result" } : ANY), [schema, tool]);
  const [value, setValue] = useState(() => initialValue(/** @type {any} */ (planned)));
  const [isJson, setJson] = useState(false);
  const [isTried, setTried] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  const errors = schema ? validate(schema, hasNotJson(value) ? undefined : value) : value === undefined ? [{ path: [], message: "is required" }] : [];
  const isEditorInvalid = hasNotJson(value);
  /** @param {{value: any} | {decline: true}} answer */
  const send = async (answer) => {
    setBusy(true);
    if (!(await onAnswer(answer))) setBusy(false);
  };
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    setTried(true);
    if (!errors.length && !isEditorInvalid) return void send({ value });
    // After the errors are shown, the first invalid field takes the focus.
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        const invalid = /** @type {HTMLElement | null} */ (form.current?.querySelector("[aria-invalid=true]") ?? null);
        (invalid?.matches("fieldset") ? /** @type {HTMLElement | null} */ (invalid.querySelector("input, select, button")) : invalid)?.focus();
      }),
    );
  };
  const shown = isTried ? errorsByPath(errors) : new Map();
  const field = /** @type {any} */ (isJson ? { ...JSON_FIELD, schema } : planned);
  const canSwitch = field.kind !== "json" || isJson;
  return html`<form ref=${form} onSubmit=${submit} noValidate aria-label="Answer" onKeyDown=${submitByKey}>
    <${isJson ? JsonField : FormField} key=${String(isJson)} field=${field} value=${value} onChange=${setValue} errors=${shown} path="" disabled=${isBusy || isClosed} />
    ${isTried && errors.length > 0 && html`<div class="problem" role="alert"><p><strong>The answer does not fit</strong></p>
      <ul>${errors.slice(0, 10).map((each) => html`<li>${errorText(each)}</li>`)}</ul></div>`}
    <div class="actions">
      <button type="submit" class="primary" disabled=${isBusy || isClosed}>${isBusy ? "Sending…" : tool ? "Send the result" : "Answer"}</button>
      ${canDecline && html`<button type="button" disabled=${isBusy || isClosed} onClick=${() => send({ decline: true })}>Decline</button>`}
      ${canSwitch && html`<button type="button" aria-pressed=${isJson ? "true" : "false"} disabled=${isBusy || isClosed} onClick=${() => setJson(!isJson)}>As JSON</button>`}
      ${isTried && errors.length > 0 && !isEditorInvalid && value !== undefined && html`<button type="button" class="danger" disabled=${isBusy}
        title="The gateway checks the answer, too" onClick=${() => send({ value })}>Send anyway</button>`}
    </div>
  </form>`;
}

/** @param {KeyboardEvent} event */
export function submitByKey(event) {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  event.stopPropagation();
  /** @type {HTMLFormElement} */ (event.currentTarget).requestSubmit();
}
