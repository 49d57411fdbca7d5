/**
 * Markdown of agents as elements. The lexer makes tokens, and this module makes elements of them, never markup: HTML
 * stays text, images become links, and only http, https and mailto can be followed.
 */

import { closedLength, decodeEntities, safeHref } from "../lib/markdown.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";

/** Depth from which tokens are shown as text. Chosen. */
const MAX_DEPTH = 40;
/** Characters from which a text is shown without Markdown, because its elements would slow the page. Chosen. */
const MAX_TEXT = 500_000;

/** Characters of a slice of a growing text. Chosen. */
const SLICE = 2_000;

/** @type {any} */
let lexer = null;

/** Return the lexer once it is loaded. It is loaded with the first agent message. */
function useLexer() {
  const [, setLoaded] = useState(lexer !== null);
  useEffect(() => {
    if (lexer) return;
    import("../vendor/marked.js").then(
      (module) => {
        lexer = module.lexer;
        setLoaded(true);
      },
      () => {}, // The text stays plain, and the next message tries again.
    );
  }, []);
  return lexer;
}

/**
 * A Markdown text. While it grows, complete blocks are kept, and the rest is plain text.
 *
 * @param {{text: string, isOpen?: boolean}} props
 */
export function Markdown({ text, isOpen = false }) {
  const lex = useLexer();
  const kept = useRef({ closed: 0, blocks: /** @type {any[]} */ ([]) });
  const whole = useMemo(() => (isOpen || !lex ? null : blocksOf(lex, text)), [lex, text, isOpen]);
  if (!lex || text.length > MAX_TEXT) return html`<div class="words">${text}</div>`;
  if (!isOpen) return html`<div class="markdown">${whole}</div>`;
  const state = kept.current;
  const closed = closedLength(text, state.closed);
  if (closed > state.closed) {
    state.blocks.push(html`<${Kept} key=${state.closed} blocks=${blocksOf(lex, text.slice(state.closed, closed))} />`);
    state.closed = closed;
  }
  return html`<div class="markdown">${state.blocks}<div class="words">${slices(text, closed)}</div></div>`;
}

/**
 * The rest of a growing text in slices. Only the last one changes, so that the browser keeps the lines before it.
 *
 * @param {string} text
 * @param {number} start
 */
function slices(text, start) {
  const spans = [];
  for (let at = start; at < text.length; at += SLICE) spans.push(html`<${Slice} key=${at} text=${text.slice(at, at + SLICE)} />`);
  return spans;
}

/** @param {{text: string}} props */
const Slice = ({ text }) => useMemo(() => html`<span>${text}</span>`, [text]);

/** Blocks that do not change any more. @param {{blocks: any}} props */
const Kept = ({ blocks }) => blocks;

/** The elements of a text, or its text if it nests too deeply for the lexer. @param {any} lex @param {string} text */
function blocksOf(lex, text) {
  try {
    return lex(text, { gfm: true, breaks: true }).map((/** @type {any} */ token) => block(token, 0));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return html`<div class="words">${text}</div>`;
  }
}

/** @param {any[] | undefined} tokens @param {number} depth */
const inlines = (tokens, depth) => (tokens ?? []).map((token) => inline(token, depth + 1));

/** @param {any[] | undefined} tokens @param {number} depth */
const blocks = (tokens, depth) => (tokens ?? []).map((token) => block(token, depth + 1));

/** @param {any} token @param {number} depth @returns {any} */
function block(token, depth) {
  if (depth > MAX_DEPTH) return html`<p class="words">${token.raw}</p>`;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      // The page has h1 and h2, so a message begins below.
      return html`<p class="heading" role="heading" aria-level=${Math.min(token.depth + 2, 6)}>${inlines(token.tokens, depth)}</p>`;
    case "paragraph":
      return html`<p>${inlines(token.tokens, depth)}</p>`;
    case "code":
      return html`<pre tabindex="0"><code>${token.text}</code></pre>`;
    case "blockquote":
      return html`<blockquote>${blocks(token.tokens, depth)}</blockquote>`;
    case "list":
      return list(token, depth);
    case "hr":
      return html`<hr />`;
    case "table":
      return table(token, depth);
    case "text":
      return token.tokens ? inlines(token.tokens, depth) : decodeEntities(token.text);
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    default:
      return html`<p class="words">${token.raw}</p>`; // HTML, and whatever a later version adds
  }
}

/** @param {any} token @param {number} depth */
function list(token, depth) {
  const items = token.items.map((/** @type {any} */ item) => html`<li>${blocks(item.tokens, depth)}</li>`);
  return token.ordered ? html`<ol start=${token.start || 1}>${items}</ol>` : html`<ul>${items}</ul>`;
}

/** @param {any} token @param {number} depth */
function table(token, depth) {
  /** @param {any} cell */
  const content = (cell) => inlines(cell.tokens, depth);
  return html`<div class="scroll" tabindex="0"><table>
    <thead><tr>${token.header.map((/** @type {any} */ cell) => html`<th scope="col">${content(cell)}</th>`)}</tr></thead>
    <tbody>${token.rows.map(
      (/** @type {any[]} */ row) => html`<tr>${row.map((cell) => html`<td>${content(cell)}</td>`)}</tr>`,
    )}</tbody>
  </table></div>`;
}

/** @param {any} token @param {number} depth @returns {any} */
function inline(token, depth) {
  if (depth > MAX_DEPTH) return token.raw;
  switch (token.type) {
    case "strong":
      return html`<strong>${inlines(token.tokens, depth)}</strong>`;
    case "em":
      return html`<em>${inlines(token.tokens, depth)}</em>`;
    case "del":
      return html`<del>${inlines(token.tokens, depth)}</del>`;
    case "codespan":
      return html`<code>${token.text}</code>`;
    case "br":
      return html`<br />`;
    case "link":
      return anchor(token.href, inlines(token.tokens, depth), token.raw);
    case "image":
      return anchor(token.href, `[image: ${token.text || token.href}]`, token.raw);
    case "escape":
    case "text":
      return token.tokens ? inlines(token.tokens, depth) : decodeEntities(token.text);
    default:
      return token.raw;
  }
}

/** A link with its address visible on the pointer, or its source if it must not be followed. @param {string} href @param {any} content @param {string} raw */
function anchor(href, content, raw) {
  const safe = safeHref(href);
  if (!safe) return raw;
  return html`<a href=${safe} title=${safe} target="_blank" rel="noopener noreferrer nofollow">${content}</a>`;
}
