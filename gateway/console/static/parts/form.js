/** Forms of a JSON Schema. A schema that has no form is a JSON editor. */

import { initialValue } from "../lib/schema.js";
import { validate } from "../lib/validate.js";
import { html, useEffect, useId, useState } from "./html.js";

/** Choices up to this number are radio buttons, more are a list. */
const MAX_RADIOS = 5;

/** Errors by the path of their field. @param {import("../lib/validate.js").SchemaError[]} errors */
export const errorsByPath = (errors) => {
  /** @type {Map<string, string>} */
  const map = new Map();
  for (const { path, message } of errors) {
    const key = path.join("/");
    map.set(key, map.has(key) ? `${map.get(key)}; ${message}` : message);
  }
  return map;
};

/**
 * @typedef {object} FieldProps
 * @property {import("../lib/schema.js").Field} field
 * @property {any} value undefined if the member is left out.
 * @property {(value: any) => void} onChange
 * @property {Map<string, string>} errors
 * @property {string} path Names of the members, joined by "/".
 * @property {boolean} [disabled]
 * @property {string} [label] Replaces the title.
 */

/** A field of any kind. @param {FieldProps} props */
export function FormField(props) {
  switch (props.field.kind) {
    case "object":
      return html`<${ObjectField} ...${props} />`;
    case "array":
      return html`<${ArrayField} ...${props} />`;
    case "variant":
      return html`<${VariantField} ...${props} />`;
    case "boolean":
      return html`<${RadioField} ...${props} choices=${[{ value: true, label: "yes" }, { value: false, label: "no" }]} />`;
    case "choice":
      return (props.field.choices?.length ?? 0) <= MAX_RADIOS
        ? html`<${RadioField} ...${props} choices=${props.field.choices} />`
        : html`<${SelectField} ...${props} />`;
    case "choices":
      return html`<${CheckboxesField} ...${props} />`;
    case "constant":
      return html`<p class="field">${props.label ?? props.field.title}: <code>${JSON.stringify(props.field.initial)}</code></p>`;
    case "json":
      return html`<${JsonField} ...${props} />`;
    default:
      return html`<${InputField} ...${props} />`;
  }
}

/** Value of a field that was emptied. @param {import("../lib/schema.js").Field} field */
const emptied = (field) => (field.isNullable ? null : undefined);

/** The title with a mark for required fields. @param {FieldProps} props */
const titleOf = ({ field, label }) =>
  html`${label ?? (field.title || "Answer")}${field.isRequired && html`<span aria-hidden="true"> *</span>`}`;

/** Description and error of a field. @param {FieldProps & {id: string}} props */
function Notes({ field, errors, path, id }) {
  const error = errors.get(path);
  return html`${field.description && html`<span class="hint" id="${id}-hint">${field.description}</span>`}
    ${error && html`<span class="field-error" id="${id}-error"><span aria-hidden="true">✕</span> ${error}</span>`}`;
}

/** Attributes that tie a control to its notes. @param {FieldProps} props @param {string} id */
const ties = ({ field, errors, path, disabled }, id) => ({
  disabled,
  "aria-describedby": `${field.description ? `${id}-hint` : ""} ${errors.has(path) ? `${id}-error` : ""}`.trim() || null,
  "aria-invalid": errors.has(path) ? "true" : null,
  "aria-required": field.isRequired ? "true" : null,
});

/** @type {Record<string, string>} */
const INPUT_TYPES = { email: "email", uri: "url", date: "date", password: "password" };

/** A text or a number. @param {FieldProps} props */
function InputField(props) {
  const { field, value, onChange } = props;
  const id = useId();
  const isNumber = field.kind === "number";
  /** @param {any} event */
  const handle = ({ target }) => {
    const text = target.value;
    if (text === "" && (isNumber || !field.isRequired || field.isNullable)) return onChange(emptied(field));
    // What is no number stays text, so that the error names it.
    onChange(isNumber && text.trim() && Number.isFinite(Number(text)) ? Number(text) : text);
  };
  const shared = { ...ties(props, id), id, onInput: handle };
  const control =
    field.format === "long"
      ? html`<textarea rows="4" ...${shared} value=${value ?? ""}></textarea>`
      : html`<input type=${INPUT_TYPES[field.format ?? ""] ?? "text"} inputmode=${isNumber ? "decimal" : null}
          autocomplete="off" placeholder=${placeholder(field)} ...${shared} value=${value ?? ""} />`;
  return html`<div class="field"><label for=${id}>${titleOf(props)}</label>${control}<${Notes} ...${props} id=${id} /></div>`;
}

/** @param {import("../lib/schema.js").Field} field */
function placeholder({ format, kind, schema }) {
  if (format === "date-time") return "2026-11-27T12:00:00Z";
  if (kind !== "number" || typeof schema !== "object") return "";
  const { minimum, maximum } = schema;
  return minimum !== undefined && maximum !== undefined ? `${minimum} to ${maximum}` : "";
}

/** One of a few values. @param {FieldProps & {choices: {value: unknown, label: string, description?: string}[]}} props */
function RadioField(props) {
  const { field, value, onChange, choices, disabled, errors, path } = props;
  const id = useId();
  const chosen = choices.findIndex((choice) => JSON.stringify(choice.value) === JSON.stringify(value));
  return html`<fieldset class="radios" role="radiogroup" ...${ties(props, id)} disabled=${disabled}>
    <legend>${titleOf(props)}</legend>
    ${choices.map((choice, index) => html`<label class="check" title=${choice.description ?? ""}>
      <input type="radio" name=${id} checked=${index === chosen} onChange=${() => onChange(choice.value)} /> ${choice.label}
    </label>`)}
    ${!field.isRequired && chosen !== -1 && !disabled && html`<button type="button" class="link" onClick=${() => onChange(emptied(field))}>clear</button>`}
    ${errors.has(path) || field.description ? html`<div><${Notes} ...${props} id=${id} /></div>` : null}
  </fieldset>`;
}

/** One of many values. @param {FieldProps} props */
function SelectField(props) {
  const { field, value, onChange } = props;
  const id = useId();
  const choices = field.choices ?? [];
  const chosen = choices.findIndex((choice) => JSON.stringify(choice.value) === JSON.stringify(value));
  /** @param {any} event */
  const handle = ({ target }) => onChange(target.value === "" ? emptied(field) : choices[Number(target.value)].value);
  return html`<div class="field"><label for=${id}>${titleOf(props)}</label>
    <select id=${id} ...${ties(props, id)} value=${chosen === -1 ? "" : String(chosen)} onChange=${handle}>
      <option value="">–</option>
      ${choices.map((choice, index) => html`<option value=${String(index)}>${choice.label}</option>`)}
    </select><${Notes} ...${props} id=${id} /></div>`;
}

/** Some of several values. @param {FieldProps} props */
function CheckboxesField(props) {
  const { field, value, onChange, disabled } = props;
  const id = useId();
  const chosen = Array.isArray(value) ? value : [];
  /** @param {unknown} each @param {boolean} isChecked */
  const toggle = (each, isChecked) => onChange(isChecked ? [...chosen, each] : chosen.filter((other) => other !== each));
  return html`<fieldset ...${ties(props, id)} disabled=${disabled}><legend>${titleOf(props)}</legend>
    ${field.choices?.map((choice) => html`<label class="check"><input type="checkbox" checked=${chosen.includes(choice.value)}
      onChange=${(/** @type {any} */ event) => toggle(choice.value, event.target.checked)} /> ${choice.label}</label>`)}
    <${Notes} ...${props} id=${id} /></fieldset>`;
}

/** An object. One that is optional is added first. @param {FieldProps} props */
function ObjectField(props) {
  const { field, value, onChange, errors, path, disabled } = props;
  const members = Object.entries(field.members ?? {});
  const isRoot = path === "";
  if (!isRoot && !field.isRequired && (value === undefined || value === null)) {
    return html`<p><button type="button" class="small" disabled=${disabled}
      onClick=${() => onChange(initialValue({ ...field, isRequired: true }) ?? {})}>Add ${field.title}</button></p>`;
  }
  const of = typeof value === "object" && value !== null ? value : {};
  /** @param {string} name @param {any} member */
  const set = (name, member) => {
    const { [name]: _, ...rest } = of;
    onChange(member === undefined ? rest : { ...of, [name]: member });
  };
  const fields = members.map(([name, member]) => html`<${FormField} key=${name} field=${member} value=${of[name]}
    onChange=${(/** @type {any} */ next) => set(name, next)} errors=${errors} path=${isRoot ? name : `${path}/${name}`} disabled=${disabled} />`);
  if (isRoot) return html`<div class="form-fields">${field.description && html`<p class="hint">${field.description}</p>`}${fields}</div>`;
  return html`<fieldset disabled=${disabled}><legend>${titleOf(props)}</legend>${fields}
    <${Notes} ...${props} id=${path} />
    ${!field.isRequired && !disabled && html`<button type="button" class="small" onClick=${() => onChange(emptied(field))}>Remove ${field.title}</button>`}
  </fieldset>`;
}

/** A list. @param {FieldProps} props */
function ArrayField(props) {
  const { field, value, onChange, errors, path, disabled } = props;
  const items = Array.isArray(value) ? value : [];
  const limit = typeof field.schema === "object" ? (field.schema.maxItems ?? Infinity) : Infinity;
  const item = /** @type {import("../lib/schema.js").Field} */ (field.item);
  /** @param {any[]} next */
  const set = (next) => onChange(next.length || field.isRequired ? next : emptied(field));
  return html`<fieldset disabled=${disabled}><legend>${titleOf(props)}</legend>
    ${items.map((each, index) => html`<div class="form-item" key=${index}>
      <${FormField} field=${item} label="${item.title} ${index + 1}" value=${each} errors=${errors} disabled=${disabled}
        path="${path ? `${path}/` : ""}${index}" onChange=${(/** @type {any} */ next) => set(items.with(index, next ?? null))} />
      ${!disabled && html`<button type="button" class="small" aria-label="Remove item ${index + 1}" onClick=${() => set(items.toSpliced(index, 1))}>Remove</button>`}
    </div>`)}
    <${Notes} ...${props} id=${path || "list"} />
    ${!disabled && items.length < limit && html`<button type="button" class="small"
      onClick=${() => set([...items, initialValue({ ...item, isRequired: true }) ?? null])}>Add ${item.title || "item"}</button>`}
  </fieldset>`;
}

/** One of several forms. @param {FieldProps} props */
function VariantField(props) {
  const { field, value, onChange, errors, path, disabled } = props;
  const variants = field.variants ?? [];
  const [chosen, setChosen] = useState(() => {
    const fitting = value === undefined ? 0 : variants.findIndex((each) => validate(each.schema, value).length === 0);
    return Math.max(fitting, 0);
  });
  const id = useId();
  /** @param {any} event */
  const choose = ({ target }) => {
    setChosen(Number(target.value));
    onChange(initialValue({ ...variants[Number(target.value)], isRequired: field.isRequired }));
  };
  return html`<fieldset disabled=${disabled}><legend>${titleOf(props)}</legend>
    <div class="field"><label for=${id}>Form</label><select id=${id} value=${String(chosen)} onChange=${choose} disabled=${disabled}>
      ${variants.map((each, index) => html`<option value=${String(index)}>${each.title}</option>`)}</select></div>
    <${FormField} key=${chosen} field=${{ ...variants[chosen], isRequired: field.isRequired }} value=${value} onChange=${onChange}
      errors=${errors} path=${path} disabled=${disabled} />
    ${field.description && html`<span class="hint">${field.description}</span>`}
  </fieldset>`;
}

/** Any value as JSON. @param {FieldProps} props */
export function JsonField(props) {
  const { field, value, onChange, errors, path, disabled } = props;
  const id = useId();
  const [text, setText] = useState(() => (value === undefined ? "" : JSON.stringify(value, null, 2)));
  const { problem } = parseJson(text);
  useEffect(() => {
    if (disabled && value !== undefined) setText(JSON.stringify(value, null, 2));
  }, [disabled, value]);
  /** @param {any} event */
  const handle = ({ target }) => {
    setText(target.value);
    const parsed = parseJson(target.value);
    // A text that is not JSON yet is an invalid value, and no member that was left out.
    onChange(parsed.problem ? NOT_JSON : parsed.value);
  };
  const shown = problem ? new Map([...errors, [path, problem]]) : errors;
  return html`<div class="field"><label for=${id}>${titleOf({ ...props, label: `${props.label ?? (field.title || "Answer")} as JSON` })}</label>
    <textarea class="code" rows=${Math.min(12, Math.max(3, text.split("\n").length))} spellcheck="false" id=${id}
      ...${ties({ ...props, errors: shown }, id)} value=${text} onInput=${handle}></textarea>
    <${Notes} ...${props} field=${field} errors=${shown} id=${id} /></div>`;
}

/** Stands for a text in an editor that is not JSON. It is a symbol, so that no schema accepts it. */
export const NOT_JSON = Symbol("not JSON");

/**
 * Return the value of a text, or the problem of its JSON. An empty text has the value undefined.
 *
 * @param {string} text
 * @returns {{value: any, problem: string}}
 */
export function parseJson(text) {
  if (!text.trim()) return { value: undefined, problem: "" };
  try {
    return { value: JSON.parse(text), problem: "" };
  } catch (error) {
    return { value: undefined, problem: `not JSON: ${error instanceof Error ? error.message : error}` };
  }
}

/** True if a value has a text that is not JSON in it. @param {any} value @returns {boolean} */
export const hasNotJson = (value) =>
  value === NOT_JSON || (typeof value === "object" && value !== null && Object.values(value).some(hasNotJson));
