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
