/** Requests as commands for a shell. No DOM. */

/** Headers that curl sets itself, or that only belong to the recording. */
const OMITTED = new Set(["host", "content-length", "connection", "accept-encoding", "user-agent"]);

/**
 * Return the curl command that sends a request.
 *
 * @param {object} request
 * @param {string} request.method
 * @param {string} request.url
 * @param {[string, string][]} [request.headers]
 * @param {string} [request.body]
 * @param {boolean} [request.keyed] True if the gateway needs an API key, which the command takes from $BABELGATE_KEY.
 */
export function curl({ method, url, headers = [], body = "", keyed = false }) {
  const words = ["curl"];
  if (headers.some(([name, value]) => name.toLowerCase() === "accept" && value.includes("event-stream"))) words.push("-N");
  if (method !== (body ? "POST" : "GET")) words.push("-X", method);
  words.push(quote(url));
  const lines = [words.join(" ")];
  // Double quotes: the shell has to replace the variable.
  if (keyed) lines.push('-H "Authorization: Bearer $BABELGATE_KEY"');
  for (const [name, value] of headers) if (!OMITTED.has(name.toLowerCase())) lines.push(`-H ${quote(`${name}: ${value}`)}`);
  if (body) lines.push(`--data-raw ${quote(body)}`);
  return lines.join(" \\\n  ");
}

/** Quote a word for a POSIX shell. @param {string} word */
const quote = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/**
 * Return the request of a curl command as the gateway's examples write it, or null if it is not one.
 *
 * @param {string} command
 * @returns {{method: string, url: string, headers: Record<string, string>, body: string} | null}
 */
export function parseCurl(command) {
  const words = [...command.matchAll(/'((?:[^']|'\\'')*)'|"((?:[^"\\]|\\.)*)"|([^\s'"]+)/g)].map(
    ([, single, double, plain]) => single?.replaceAll("'\\''", "'") ?? double?.replace(/\\(.)/g, "$1") ?? plain,
  );
  if (words.shift() !== "curl") return null;
  const request = { method: "", url: "", headers: /** @type {Record<string, string>} */ ({}), body: "" };
  while (words.length) {
    const word = /** @type {string} */ (words.shift());
    if (word === "-X") request.method = words.shift() ?? "";
    else if (word === "-H") {
      const [name, ...value] = (words.shift() ?? "").split(":");
      request.headers[name.trim()] = value.join(":").trim();
    } else if (word === "-d" || word === "--data-raw") request.body = words.shift() ?? "";
    else if (!word.startsWith("-") && word !== "\\") request.url = word;
  }
  if (!request.url) return null;
  request.method ||= request.body ? "POST" : "GET";
  return request;
}
