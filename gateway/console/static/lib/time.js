/** Times, durations and sizes as people read them. An unknown value is "–". */

export const UNKNOWN = "–";

/**
 * Return a time as milliseconds since 1970. The gateway sends microseconds, which are the fraction of the result.
 *
 * @param {string | null | undefined} text RFC 3339 in UTC.
 * @returns {number | null}
 */
export function parseTime(text) {
  if (!text) return null;
  const seconds = Date.parse(text.replace(/\.\d+/, ""));
  if (Number.isNaN(seconds)) return null;
  const fraction = /\.(\d+)/.exec(text);
  return seconds + (fraction ? Number(`0.${fraction[1]}`) * 1000 : 0);
}

/**
 * Return the seconds from one time to another, or null if either is unknown.
 *
 * @param {string | null | undefined} from
 * @param {string | null | undefined} to
 */
export function secondsBetween(from, to) {
  const [first, second] = [parseTime(from), parseTime(to)];
  return first === null || second === null ? null : (second - first) / 1000;
}

/** Smallest length of each unit in seconds, longest first. */
const UNITS = /** @type {const} */ ([
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
]);

/**
 * Return a duration with its unit: "340 ms", "4.2 s", "3 min 5 s", "2 h 10 min".
 *
 * @param {number | null | undefined} seconds
 */
export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return UNKNOWN;
  if (seconds < 0) return `−${formatDuration(-seconds)}`;
  if (seconds < 0.001) return seconds === 0 ? "0 ms" : "<1 ms";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.995) return `${seconds.toFixed(seconds < 1.995 ? 2 : 1).replace(/(\.\d)0$/, "$1")} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const rounded = Math.round(seconds);
  const index = UNITS.findIndex(([length]) => rounded >= length);
  const [length, unit] = UNITS[index];
  const [smaller, smallerUnit] = UNITS[index + 1] ?? [1, "s"];
  const rest = Math.floor((rounded % length) / smaller);
  return `${Math.floor(rounded / length)} ${unit}${rest ? ` ${rest} ${smallerUnit}` : ""}`;
}

/**
 * Return a time relative to another: "now", "12 s ago", "3 min ago", "in 2 h".
 *
 * @param {string | null | undefined} text
 * @param {number} [now] Milliseconds since 1970.
 */
export function formatRelative(text, now = Date.now()) {
  const at = parseTime(text);
  if (at === null) return UNKNOWN;
  const seconds = (now - at) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const length = Math.abs(seconds);
  const [unit, name] = UNITS.find(([unit]) => length >= unit) ?? [1, "s"];
  const words = `${Math.floor(length / unit)} ${name}`;
  return seconds > 0 ? `${words} ago` : `in ${words}`;
}

/** @param {number} number @param {number} [width] */
const pad = (number, width = 2) => String(number).padStart(width, "0");

/**
 * Return the local time of day: "12:01:07", or with milliseconds "12:01:07.340".
 *
 * @param {string | null | undefined} text
 * @param {boolean} [hasMilliseconds]
 */
export function formatClock(text, hasMilliseconds = false) {
  const at = parseTime(text);
  if (at === null) return UNKNOWN;
  const date = new Date(at);
  const clock = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return hasMilliseconds ? `${clock}.${pad(date.getMilliseconds(), 3)}` : clock;
}

/**
 * Return the exact local date and time: "2026-11-27 12:01:07.340".
 *
 * @param {string | null | undefined} text
 */
export function formatExact(text) {
  const at = parseTime(text);
  if (at === null) return UNKNOWN;
  const date = new Date(at);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${formatClock(text, true)}`;
}

/**
 * Return a size with its unit: "312 bytes", "20 KB", "1.4 MB".
 *
 * @param {number | null | undefined} bytes
 */
export function formatBytes(bytes) {
  if (bytes === null || bytes === undefined || !Number.isFinite(bytes)) return UNKNOWN;
  if (bytes < 1000) return `${bytes} ${bytes === 1 ? "byte" : "bytes"}`;
  const units = ["KB", "MB", "GB", "TB"];
  let size = bytes / 1000;
  while (size >= 999.5 && units.length > 1) {
    size /= 1000;
    units.shift();
  }
  return `${size < 9.95 ? size.toFixed(1).replace(/\.0$/, "") : Math.round(size)} ${units[0]}`;
}

const THOUSANDS = new Intl.NumberFormat("en-US"); // toLocaleString would create one each time

/**
 * Return a number with separators of thousands: "50,000".
 *
 * @param {number | null | undefined} number
 */
export function formatNumber(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return UNKNOWN;
  return THOUSANDS.format(number);
}

/**
 * Return a number and its noun: "1 run", "2 runs".
 *
 * @param {number} number
 * @param {string} noun
 * @param {string} [plural]
 */
export function count(number, noun, plural = `${noun}s`) {
  return `${formatNumber(number)} ${number === 1 ? noun : plural}`;
}
