/** Files: names, sizes, downloads, and previews of images. A file is never opened as a page, since it would run here. */

import { gatewayUrl, request } from "../lib/api.js";
import { safeHref } from "../lib/markdown.js";
import { formatBytes } from "../lib/time.js";
import { html, useEffect, useState } from "./html.js";
import { asProblem } from "./state.js";

/** Types of images that are shown. SVG is a document, and may have scripts. */
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
/** Bytes up to which an image is shown without a click. Chosen. */
const PREVIEW = 2_000_000;

/** The bytes of a text in Base64. @param {string} text */
const bytesOf = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

/**
 * Save bytes as a file.
 *
 * @param {Blob} blob
 * @param {string} name
 */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * A file of a message or an artifact.
 *
 * @param {{part: any, agent?: string}} props
 */
export function File({ part, agent }) {
  const [problem, setProblem] = useState("");
  const name = part.name || "file";
  const external = part.url && !part.inline ? safeHref(part.url) : null;
  const download = async () => {
    try {
      save(await contentOf(part, agent), name);
      setProblem("");
    } catch (error) {
      setProblem(asProblem(error).message);
    }
  };
  return html`<div data-file=${name}><div class="file">
    <span aria-hidden="true">▤</span> <span class="file-name">${name}</span>
    <span class="muted">${[part.media_type, formatBytes(sizeOf(part))].filter((each) => each && each !== "–").join(", ")}</span>
    ${external
      ? html`<a href=${external} target="_blank" rel="noopener noreferrer nofollow">Open ${new URL(external).host}</a>`
      : html`<button type="button" class="small" onClick=${download} aria-label="Download ${name}">Download</button>`}
    ${problem && html`<span class="field-error" role="alert">${problem}</span>`}</div>
    ${part.inline && IMAGES.has(part.media_type) && html`<${Preview} part=${part} name=${name} />`}
  </div>`;
}

/** @param {any} part */
const sizeOf = ({ text, size, inline }) => text?.length ?? size ?? (inline ? Math.floor((inline.length * 3) / 4) - (/=*$/.exec(inline)?.[0].length ?? 0) : null);

/** The bytes of a file, which the gateway has if the record has only their hash. @param {any} part @param {string} [agent] */
async function contentOf({ text, inline, blob, url }, agent) {
  if (text !== undefined) return new Blob([text], { type: "application/octet-stream" });
  if (inline) return new Blob([bytesOf(inline)], { type: "application/octet-stream" });
  const path = url?.startsWith("/") ? url : `/agents/${encodeURIComponent(agent ?? "")}/files/${blob}`;
  return (await request(gatewayUrl(path), { headers: { accept: "*/*" } })).blob();
}

/** @param {{part: any, name: string}} props */
function Preview({ part, name }) {
  const [isShown, setShown] = useState(sizeOf(part) <= PREVIEW);
  const [url, setUrl] = useState("");
  useEffect(() => {
    if (!isShown) return;
    const made = URL.createObjectURL(new Blob([bytesOf(part.inline)], { type: part.media_type }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [part.inline, isShown]);
  if (!isShown) return html`<button type="button" class="small" onClick=${() => setShown(true)}>Show the image</button>`;
  return url ? html`<img class="preview" src=${url} alt=${name} />` : null;
}
