/** Requests to the gateway. No other module of the console calls `fetch`. */

/** A request that failed: the error of the gateway, or of the network. */
export class Problem extends Error {
  /**
   * @param {object} members
   * @param {number} members.status HTTP status, or 0 if there was no response.
   * @param {string} members.code Code of the fault, such as `not_found`.
   * @param {string} members.message
   * @param {string | null} [members.requestId]
   * @param {{field: string, description: string}[]} [members.errors] Invalid members of the request.
   */
  constructor({ status, code, message, requestId = null, errors = [] }) {
    super(message);
    this.name = "Problem";
    this.status = status;
    this.code = code;
    this.requestId = requestId;
    this.errors = errors;
  }

  /** True if the same request may succeed later: no response, overload, or a failure of the server. */
  get isTemporary() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

const connection = {
  /** Address of the page, without its hash. All addresses are relative to it, so that any prefix works. */
  base: "http://localhost/console/",
  /** @type {string | null} */
  key: null,
  /** @type {() => void} */
  onUnauthenticated: () => {},
};

/** Responses that were requested before a page needs them, by address. `content` is there when the response is. @type {Map<string, {value: Promise<any>, at: number, content?: any}>} */
const early = new Map();
/** Milliseconds after which such a response is out of date. */
const EARLY = 5000;

/**
 * Set the base address, the API key, or the function to call when the gateway asks for a key.
 *
 * @param {Partial<typeof connection>} changes
 */
export function configure(changes) {
  if ("key" in changes && changes.key !== connection.key) early.clear();
  Object.assign(connection, changes);
}

/** True if requests carry an API key. */
export const hasKey = () => connection.key !== null;

/**
 * Return the address of a route of the console's API.
 *
 * @param {string} path Without a slash at its start, such as `agents/echo`.
 * @param {Record<string, string | number | boolean | null | undefined>} [query] Empty members are left out.
 */
export function consoleUrl(path, query = {}) {
  const url = new URL(`api/v1/${path}`, connection.base);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) {
      url.searchParams.set(name, value === true ? "1" : String(value));
    }
  }
  return url;
}

/**
 * Return the address of a route of a protocol.
 *
 * @param {string} path With a slash at its start, such as `/v1/runs`.
 */
export const gatewayUrl = (path) => new URL(`..${path}`, connection.base);

/** Address of the gateway as clients use it, without a slash at its end. */
export const gatewayBase = () => new URL("..", connection.base).href.replace(/\/$/, "");

/**
 * @typedef {object} RequestOptions
 * @property {string} [method]
 * @property {unknown} [body] JSON value; a string with `headers["content-type"]` is sent as it is.
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 */

/**
 * Send a request, and return a successful response. Throws Problem.
 *
 * @param {URL} url
 * @param {RequestOptions} [options]
 */
export async function request(url, options = {}) {
  const response = await send(url, options);
  if (response.ok) return response;
  throw await problemOf(response);
}

/** @param {URL} url @param {RequestOptions} options */
async function send(url, { method = "GET", body, headers = {}, signal }) {
  const all = new Headers({ accept: "application/json", ...headers });
  if (connection.key !== null) all.set("authorization", `Bearer ${connection.key}`);
  let content;
  if (typeof body === "string" && all.has("content-type")) content = body;
  else if (body !== undefined) {
    content = JSON.stringify(body);
    all.set("content-type", "application/json");
  }
  try {
    return await fetch(url, { method, headers: all, body: content, signal, credentials: "omit", redirect: "follow" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem({ status: 0, code: "unreachable", message: "The gateway did not answer. Is it running?" });
  }
}

/**
 * Return the error of a response. Each protocol has its own form; these are the forms of the gateway and the runtime.
 *
 * @param {Response} response
 */
async function problemOf(response) {
  const requestId = response.headers.get("x-request-id");
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    // A proxy may answer with a page.
  }
  if (response.status === 401) connection.onUnauthenticated();
  return new Problem({
    status: response.status,
    code: error?.code ?? `http_${response.status}`,
    message: error?.message ?? `The server answered with status ${response.status}.`,
    requestId,
    errors: error?.errors ?? [],
  });
}

/**
 * Return the JSON of a route of the console's API. Throws Problem.
 *
 * @param {string} path
 * @param {Parameters<typeof consoleUrl>[1]} [query]
 * @param {RequestOptions} [options]
 */
export async function get(path, query, options) {
  const url = consoleUrl(path, query);
  return takeEarly(url)?.value ?? readJson(await request(url, options));
}

/** Return an early response that no page has used yet. @param {URL} url */
function takeEarly({ href }) {
  const known = early.get(href);
  early.delete(href);
  return known && performance.now() - known.at < EARLY ? known : null;
}

/**
 * Return the JSON of a route that was requested early, or undefined if there is no response yet. A page with it needs no
 * rendering without data.
 *
 * @param {string} path
 * @param {Parameters<typeof consoleUrl>[1]} [query]
 */
export function takeArrived(path, query) {
  const url = consoleUrl(path, query);
  return early.get(url.href)?.content === undefined ? undefined : takeEarly(url)?.content;
}

/** Wait until all early requests have ended. */
export const settleEarly = () => Promise.allSettled([...early.values()].map(({ value }) => value));

/**
 * Request a route of the console's API before a page needs it. The next `get` of this route returns the response.
 *
 * @param {string} path
 * @param {Parameters<typeof consoleUrl>[1]} [query]
 */
export function prefetch(path, query) {
  /** @type {{value: Promise<any>, at: number, content?: any}} */
  const response = { value: get(path, query), at: performance.now() };
  response.value.then(
    (content) => (response.content = content),
    () => {}, // the page reports it
  );
  early.set(consoleUrl(path, query).href, response);
}

/**
 * Send a change to the console's API, and return the JSON of its response. Throws Problem.
 *
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 */
export const change = async (method, path, body) => readJson(await request(consoleUrl(path), { method, body }));

/**
 * Send a request to a route of a protocol, and return the JSON of its response. Throws Problem.
 *
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {RequestOptions} [options]
 */
export const call = async (method, path, body, options = {}) =>
  readJson(await request(gatewayUrl(path), { ...options, method, body }));

/** @param {Response} response */
async function readJson(response) {
  const text = await response.text();
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch {
    const message = "The response is not JSON. Does a proxy answer in place of the gateway?";
    throw new Problem({ status: response.status, code: "not_json", message });
  }
}

/**
 * Open a stream of server-sent events after an event. Throws Problem.
 *
 * @param {URL} url
 * @param {string | null} cursor Id of the last event that was received.
 * @param {AbortSignal} signal
 */
export const openStream = (url, cursor, signal) =>
  request(url, {
    headers: { accept: "text/event-stream", ...(cursor === null ? {} : { "last-event-id": cursor }) },
    signal,
  });

/**
 * Send a request as it is, and return the whole response, whatever its status. Throws Problem if there is none.
 *
 * @param {string} method
 * @param {string} path Path of a protocol's route.
 * @param {RequestOptions} [options]
 */
export async function exchange(method, path, options = {}) {
  const began = performance.now();
  const response = await send(gatewayUrl(path), { ...options, method });
  const text = await response.text();
  return {
    status: response.status,
    headers: Object.fromEntries(response.headers),
    text,
    seconds: (performance.now() - began) / 1000,
  };
}

/**
 * Send a request as it is, and return the open response, whatever its status, for a stream of any form.
 *
 * @param {string} method
 * @param {string} path Path of a protocol's route.
 * @param {RequestOptions} [options]
 */
export const openExchange = (method, path, options = {}) => send(gatewayUrl(path), { ...options, method });
