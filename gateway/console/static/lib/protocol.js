/** Names of protocols as people read them. */

/**
 * Return the protocol and version of a run or a look: "a2a 1.0".
 *
 * @param {{protocol?: string | null, version?: string | null}} spoken
 */
export function protocolText({ protocol, version }) {
  if (!protocol) return version || "–";
  if (!version) return protocol;
  return version.startsWith(protocol) ? version : `${protocol} ${version}`;
}
