/** Markdown of agents, safely: which links may be followed, and how a text that still grows is split. */

/** Schemes of links that may be followed. */
const SCHEMES = new Set(["http:", "https:", "mailto:"]);

/** Return the address of a link if it may be followed, else null. Relative addresses would lead into the console. @param {string} href */
export function safeHref(href) {
  try {
    const url = new URL(href);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/**
 * Return the length of the part of a growing text whose blocks are complete: it ends with a blank line outside of a
 * fence, list and quote.
 *
 * @param {string} text
 * @param {number} [from] Length of the part that is known to be complete.
 */
export function closedLength(text, from = 0) {
  let closed = from;
  let fence = "";
  let start = from;
  let isNested = false;
  for (let end = text.indexOf("\n", start); end !== -1; end = text.indexOf("\n", start)) {
    const line = text.slice(start, end);
    start = end + 1;
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];
    if (fence) {
      if (mark && mark[0] === fence[0] && mark.length >= fence.length && !line.trim().slice(mark.length)) fence = "";
    } else if (mark) {
      fence = mark;
    } else if (!line.trim()) {
      if (!isNested) closed = start;
    } else isNested = /^(\s|[-*+>|]|\d+[.)])/.test(line);
  }
  return closed;
}

/** @type {Record<string, string>} */
const NAMES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };

/** Decode the entities that people write in Markdown. @param {string} text */
export const decodeEntities = (text) =>
  text.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]+));/gi, (entity, decimal, hexadecimal, name) => {
    if (name) return NAMES[name.toLowerCase()] ?? entity;
    const code = decimal ? Number(decimal) : parseInt(hexadecimal, 16);
    return code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? String.fromCodePoint(code) : entity;
  });
