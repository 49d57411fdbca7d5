/** A server on a free port of this machine, for tests of requests and streams. */

import { createServer } from "node:http";

/**
 * Start a server. It is closed after the test.
 *
 * @param {import("node:test").TestContext} t
 * @param {import("node:http").RequestListener} handler
 * @returns {Promise<URL>} Its base URL.
 */
export async function serve(t, handler) {
  const server = createServer(handler);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return new URL(`http://127.0.0.1:${server.address().port}/`);
}

/** A promise with its resolve function. @template T @returns {{promise: Promise<T>, resolve: (value: T) => void}} */
export function defer() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
