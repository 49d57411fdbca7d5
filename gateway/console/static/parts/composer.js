/** The form that starts a run: message, files, and the options of the runtime's request. */

import { isObject, planForm, resolve } from "../lib/schema.js";
import { count, formatBytes } from "../lib/time.js";
import { errorsByPath, FormField, hasNotJson, JsonField, parseJson } from "./form.js";
import { html, useId, useMemo, useRef, useState } from "./html.js";
import { submitByKey } from "./question.js";
import { validate } from "../lib/validate.js";

/** Ways to treat an input while another run of the thread is active, in the words of the runtime. */
const STRATEGIES = [
  ["enqueue", "enqueue: after the active run"],
  ["reject", "reject: refuse this one"],
  ["interrupt", "interrupt: end the active run"],
  ["rollback", "rollback: remove the active run"],
];
const JSON_OPTIONS = [
  ["tools", "Tools of the caller", 'A list: [{"name": "weather", "description": "…", "parameters": {…}}]. The agent calls them, and you answer with the result.'],
  ["output_schema", "Output schema", "A JSON Schema. The run fails if its output does not fit."],
  ["config", "Config", "An object that the agent receives."],
  ["metadata", "Metadata", "An object that is kept on the run."],
];

/**
 * What the composer holds. @typedef {object} Draft
 * @property {string} text
 * @property {{name: string, media_type: string, size: number, inline: string}[]} files
 * @property {boolean} isData True if the input is JSON instead of a message.
 * @property {any} data
 * @property {Record<string, string>} options JSON texts by member.
 * @property {string} strategy
 */

/** @param {string} text @returns {Draft} */
export const newDraft = (text = "") => ({ text, files: [], isData: false, data: undefined, options: {}, strategy: "enqueue" });

/**
 * Return the body of the request that a draft makes, and its problems by option.
 *
 * @param {Draft} draft
 * @param {string} agent
 * @param {string | null} from Checkpoint to fork from.
 */
export function bodyOf(draft, agent, from) {
  /** @type {Record<string, unknown>} */
  const body = { assistant_id: agent, input: inputOf(draft) };
  /** @type {Record<string, string>} */
  const problems = {};
  for (const [name] of JSON_OPTIONS) {
    const { value, problem } = parseJson(draft.options[name] ?? "");
    if (problem) problems[name] = problem;
    else if (value !== undefined) body[name] = value;
  }
  if (from) body.checkpoint_id = from;
  if (draft.strategy !== "enqueue") body.multitask_strategy = draft.strategy;
  return { body, problems };
}

/** @param {Draft} draft */
function inputOf({ text, files, isData, data }) {
  if (isData) return data ?? null;
  if (!files.length) return text;
  const parts = files.map(({ name, media_type, inline }) => ({ kind: "file", name, media_type, inline }));
  return [{ role: "user", parts: [...(text ? [{ kind: "text", text }] : []), ...parts] }];
}

/**
 * @param {object} props
 * @param {Draft} props.draft
 * @param {(change: Partial<Draft>) => void} props.onChange
 * @param {any} props.agent The agent, with its schemas.
 * @param {any} props.limits
 * @param {Record<string, string>} props.problems
 * @param {boolean} props.isBusy
 * @param {() => void} props.onSend
 * @param {any} [props.tools] More buttons beside Send.
 */
export function Composer({ draft, onChange, agent, limits, problems, isBusy, onSend, tools }) {
  const inputSchema = agent?.schemas?.input ?? null;
  const field = useMemo(() => planForm(inputSchema), [inputSchema]);
  const [fileProblem, setFileProblem] = useState("");
  const [isTried, setTried] = useState(false);
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const isEmpty = draft.isData ? draft.data === undefined : !draft.text && !draft.files.length;
  const errors = draft.isData && inputSchema && !hasNotJson(draft.data) ? validate(inputSchema, draft.data) : [];
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    setTried(true);
    if (Object.keys(problems).length) return setOpen(true);
    if (!isEmpty && !hasNotJson(draft.data) && !isBusy) {
      setTried(false);
      onSend();
    }
  };
  /** @param {FileList | File[]} list */
  const addFiles = async (list) => {
    const { files, problem } = await readFiles([...list], limits, draft.files);
    setFileProblem(problem);
    if (files.length) onChange({ files: [...draft.files, ...files] });
  };
  const used = JSON_OPTIONS.filter(([name]) => draft.options[name]?.trim()).length + (draft.strategy === "enqueue" ? 0 : 1);
  return html`<form class="composer" onSubmit=${submit} onKeyDown=${submitByKey} aria-label="Message" noValidate
    onDragOver=${(/** @type {DragEvent} */ event) => event.preventDefault()}
    onDrop=${(/** @type {DragEvent} */ event) => (event.preventDefault(), event.dataTransfer && addFiles(event.dataTransfer.files))}>
    ${draft.isData
      ? inputSchema
        ? html`<${FormField} field=${{ ...field, title: field.title || "Input" }} value=${draft.data} path="" errors=${isTried ? errorsByPath(errors) : new Map()}
            onChange=${(/** @type {any} */ data) => onChange({ data })} />`
        : html`<${JsonField} field=${{ ...field, title: "Input" }} value=${draft.data} path="" errors=${new Map()} onChange=${(/** @type {any} */ data) => onChange({ data })} />`
      : html`<label for=${id} class="visually-hidden">Message</label>
        <textarea id=${id} rows="3" placeholder="Message to ${agent?.name ?? "the agent"}" value=${draft.text}
          onInput=${(/** @type {any} */ event) => onChange({ text: event.target.value })}></textarea>`}
    ${draft.files.length > 0 && html`<ul class="file-list" aria-label="Files to send">${draft.files.map(
      (file, index) => html`<li>${file.name} <span class="muted">${formatBytes(file.size)}</span>
        <button type="button" class="small" aria-label="Remove ${file.name}" onClick=${() => onChange({ files: draft.files.toSpliced(index, 1) })}>Remove</button></li>`,
    )}</ul>`}
    ${fileProblem && html`<p class="field-error" role="alert">${fileProblem}</p>`}
    <div class="actions">
      <button type="submit" class="primary" disabled=${isBusy || isEmpty} title="Ctrl Enter">${isBusy ? "Sending…" : "Send"}</button>
      ${tools}
      ${!draft.isData && html`<${FileButton} onFiles=${addFiles} />`}
      <button type="button" aria-pressed=${draft.isData ? "true" : "false"} onClick=${() => onChange({ isData: !draft.isData })}>Input as ${inputSchema ? "form" : "JSON"}</button>
      <button type="button" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => setOpen(!isOpen)}>Options${used > 0 && `, ${count(used, "set", "set")}`}</button>
    </div>
    ${isOpen && html`<${Options} draft=${draft} onChange=${onChange} problems=${problems} configSchema=${agent?.schemas?.config} />`}
  </form>`;
}

/** @param {{onFiles: (files: FileList) => void}} props */
function FileButton({ onFiles }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  /** @param {any} event */
  const handle = ({ target }) => {
    onFiles(target.files);
    target.value = "";
  };
  return html`<input type="file" multiple hidden ref=${input} aria-label="Files" onChange=${handle} />
    <button type="button" onClick=${() => input.current?.click()}>Add files</button>`;
}

/** @param {{draft: Draft, onChange: (change: Partial<Draft>) => void, problems: Record<string, string>, configSchema: any}} props */
function Options({ draft, onChange, problems, configSchema }) {
  const prefix = useId();
  const schema = configSchema ? resolve(configSchema, configSchema) : null;
  const keys = isObject(schema) ? Object.keys(schema.properties ?? {}) : [];
  return html`<div class="options" role="group" aria-label="Options">
    ${JSON_OPTIONS.map(([name, title, hint]) => {
      const id = `${prefix}-${name}`;
      const hasHint = name === "config" && keys.length > 0 ? `${hint} The agent reads: ${keys.join(", ")}.` : hint;
      return html`<div class="field"><label for=${id}>${title} <span class="muted">as JSON</span></label>
        <textarea class="code" id=${id} rows="2" spellcheck="false" aria-describedby="${id}-hint" aria-invalid=${problems[name] ? "true" : null}
          value=${draft.options[name] ?? ""} onInput=${(/** @type {any} */ event) => onChange({ options: { ...draft.options, [name]: event.target.value } })}></textarea>
        <span class="hint" id="${id}-hint">${problems[name] ? html`<span class="field-error"><span aria-hidden="true">✕</span> ${problems[name]}</span>` : hasHint}</span></div>`;
    })}
    <label class="field">If the thread is busy
      <select value=${draft.strategy} onChange=${(/** @type {any} */ event) => onChange({ strategy: event.target.value })}>
        ${STRATEGIES.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>
  </div>`;
}

/**
 * Read files as Base64. Returns those that fit, and the problem of the others.
 *
 * @param {File[]} list
 * @param {any} limits
 * @param {{size: number}[]} present
 */
async function readFiles(list, limits, present) {
  const files = [];
  let total = present.reduce((sum, { size }) => sum + size, 0);
  for (const file of list) {
    // Base64 takes 4 bytes for 3, and the rest of the body is small.
    const room = Math.min(limits?.file_bytes ?? Infinity, ((limits?.body_bytes ?? Infinity) * 3) / 4 - 10_000 - total);
    if (file.size > room) {
      return { files, problem: `${file.name} has ${formatBytes(file.size)}, but only ${formatBytes(Math.max(0, Math.floor(room)))} fit into one request.` };
    }
    total += file.size;
    const data = await new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(String(reader.result));
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
    files.push({ name: file.name, media_type: file.type || "application/octet-stream", size: file.size, inline: data.slice(data.indexOf(",") + 1) });
  }
  return { files, problem: "" };
}
