/** Frames of server-sent events. */

/** @typedef {{id: string | null, event: string, data: string}} Frame */

/** Splits a stream of text into frames. Lines end with LF or CR LF. */
export class FrameParser {
  constructor() {
    this._rest = "";
    this._clear();
  }

  /**
   * Return the frames that are complete after one more piece of text.
   *
   * @param {string} text
   * @returns {Frame[]}
   */
  push(text) {
    /** @type {Frame[]} */
    const frames = [];
    const buffer = this._rest + text;
    let start = 0;
    for (let end = buffer.indexOf("\n"); end !== -1; end = buffer.indexOf("\n", start)) {
      const line = buffer.slice(start, buffer[end - 1] === "\r" && end > start ? end - 1 : end);
      start = end + 1;
      if (line) this._readLine(line);
      else {
        if (this._data.length) frames.push({ id: this._id, event: this._event, data: this._data.join("\n") });
        this._clear();
      }
    }
    this._rest = buffer.slice(start);
    return frames;
  }

  _clear() {
    /** @type {string | null} */
    this._id = null;
    this._event = "message";
    /** @type {string[]} */
    this._data = [];
  }

  /** @param {string} line */
  _readLine(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment, such as a heartbeat
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") this._data.push(value);
    else if (name === "id") this._id = value;
    else if (name === "event") this._event = value;
  }
}
