/** Keyboard shortcuts: single keys, and sequences such as `g a`. */

/** Milliseconds within which the second key of a sequence must follow. Chosen. */
const SEQUENCE = 1500;

/**
 * @typedef {object} KeyPress
 * @property {string} key
 * @property {boolean} [ctrlKey]
 * @property {boolean} [metaKey]
 * @property {boolean} [altKey]
 * @property {boolean} [isEditable] True if the key goes to a text field.
 * @property {number} [at] Milliseconds of any clock.
 */

/** Finds the action of a key press. Later bindings replace earlier ones, until they are removed. */
export class Shortcuts {
  constructor() {
    /** False disables single keys and sequences (WCAG 2.1.4). Keys with Ctrl still work. */
    this.isEnabled = true;
    /** @type {Record<string, () => void>[]} */
    this._layers = [];
    this._first = "";
    this._firstAt = 0;
  }

  /**
   * Add bindings, and return a function that removes them. The names are keys ("j", "?"), sequences ("g a"), and
   * "ctrl+enter".
   *
   * @param {Record<string, () => void>} bindings
   */
  add(bindings) {
    this._layers.push(bindings);
    return () => {
      this._layers = this._layers.filter((layer) => layer !== bindings);
    };
  }

  /**
   * Return the action of a key press, or null.
   *
   * @param {KeyPress} press
   * @returns {(() => void) | null}
   */
  find({ key, ctrlKey = false, metaKey = false, altKey = false, isEditable = false, at = 0 }) {
    if (ctrlKey || metaKey) return this._lookUp(`ctrl+${key.toLowerCase()}`);
    const sequence = this._first && at - this._firstAt < SEQUENCE ? `${this._first} ${key}` : "";
    this._first = "";
    if (altKey || isEditable || !this.isEnabled) return null;
    const action = (sequence && this._lookUp(sequence)) || this._lookUp(key);
    if (!action && this._layers.some((layer) => Object.keys(layer).some((name) => name.startsWith(`${key} `)))) {
      this._first = key;
      this._firstAt = at;
    }
    return action;
  }

  /** @param {string} name */
  _lookUp(name) {
    const layer = this._layers.findLast((each) => name in each);
    return layer ? layer[name] : null;
  }
}
