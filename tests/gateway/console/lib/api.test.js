import assert from "node:assert/strict";
import { test } from "node:test";

import { call, change, configure, consoleUrl, exchange, gatewayBase, gatewayUrl, get, prefetch, Problem } from "../../../../gateway/console/static/lib/api.js";
import { serve } from "./server.js";

test("addresses are relative to the page, below any prefix", () => {
  for (const [base, root] of [
    ["http://host/console/", "http://host"],
    ["https://host/team/gateway/console/#/agents", "https://host/team/gateway"],
    ["http://host/agent/echo/console/", "http://host/agent/echo"],
  ]) {
    configure({ base });
    assert.equal(gatewayUrl("/v1/runs").href, `${root}/v1/runs`);
    assert.equal(gatewayBase(), root);
    assert.equal(consoleUrl("runs", { agent: "a b", q: "", all: true, after: null, fold: false }).href, `${root}/console/api/v1/runs?agent=a+b&all=1`);
  }
});

test("requests carry the key in a header, and JSON", async (t) => {
  const seen = [];
  const base = await serve(t, (request, response) => {
    request.setEncoding("utf8");
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      seen.push([request.method, request.url, request.headers.authorization, request.headers["content-type"], body]);
      response.end("{}");
    });
  });
  configure({ base: new URL("console/", base).href, key: "secret" });
  await change("POST", "jobs", { kind: "check" });
  await call("POST", "/v1/runs/1/cancel");
  configure({ key: null });
  await get("me");
  assert.deepEqual(seen, [
    ["POST", "/console/api/v1/jobs", "Bearer secret", "application/json", '{"kind":"check"}'],
    ["POST", "/v1/runs/1/cancel", "Bearer secret", undefined, ""],
    ["GET", "/console/api/v1/me", undefined, undefined, ""],
  ]);
});

test("a prefetched response is used once, and only with the key that it was requested with", async (t) => {
  const seen = [];
  const base = await serve(t, (request, response) => {
    seen.push(request.headers.authorization ?? "none");
    response.writeHead(request.headers.authorization ? 200 : 401);
    response.end("{}");
  });
  configure({ base: new URL("console/", base).href, key: "one" });
  prefetch("agents");
  await get("agents");
  assert.deepEqual(seen, ["Bearer one"]);
  await get("agents");
  prefetch("agents");
  configure({ key: "two" });
  await get("agents");
  configure({ key: null });
  prefetch("agents");
  await assert.rejects(get("agents"), { status: 401 });
  assert.deepEqual(seen.toSorted(), ["Bearer one", "Bearer one", "Bearer one", "Bearer two", "none"]);
});

/** Status, content type, body; code and message of the problem; whether it is temporary. */
const FAILURES = [
  [404, "application/json", '{"error":{"code":"not_found","message":"no run"}}', "not_found", "no run", false],
  [422, "application/json", '{"error":{"code":"invalid","message":"m","errors":[{"field":"f","description":"d"}]}}', "invalid", "m", false],
  [503, "text/html", "<h1>proxy</h1>", "http_503", "The server answered with status 503.", true],
  [429, "application/json", '{"error":{"code":"queue_full","message":"full"}}', "queue_full", "full", true],
  [200, "text/html", "<h1>login</h1>", "not_json", "The response is not JSON. Does a proxy answer in place of the gateway?", false],
];

test("a failure has the words of the gateway and the id of the request", async (t) => {
  for (const [status, type, body, code, message, isTemporary] of FAILURES) {
    const base = await serve(t, (_request, response) => {
      response.writeHead(status, { "content-type": type, "x-request-id": "r1" });
      response.end(body);
    });
    configure({ base: new URL("console/", base).href });
    await assert.rejects(get("runs"), (problem) => {
      assert.ok(problem instanceof Problem);
      assert.deepEqual([problem.status, problem.code, problem.message, problem.isTemporary], [status, code, message, isTemporary]);
      assert.equal(problem.requestId, status === 200 ? null : "r1");
      assert.equal(problem.errors.length, status === 422 ? 1 : 0);
      return true;
    });
    assert.equal((await exchange("GET", "/v1/runs")).status, status);
  }
});

test("a refused key asks for another one", async (t) => {
  let asked = 0;
  const base = await serve(t, (_request, response) => void response.writeHead(401).end());
  configure({ base: new URL("console/", base).href, onUnauthenticated: () => asked++ });
  await assert.rejects(get("me"), { status: 401 });
  assert.equal(asked, 1);
});

test("a gateway that does not answer is a temporary problem", async (t) => {
  const base = await serve(t, (request) => void request.socket.destroy());
  configure({ base: new URL("console/", base).href });
  await assert.rejects(get("me"), { status: 0, code: "unreachable", isTemporary: true });
});
