// Serves the page, and CopilotKit's runtime at /copilotkit with the gateway's agents. API keys stay in this process.

import { HttpAgent } from "@ag-ui/client";
import { CopilotRuntime, InMemoryAgentRunner, createCopilotRuntimeHandler } from "@copilotkit/runtime/v2";
import { createCopilotNodeHandler } from "@copilotkit/runtime/v2/node";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { EMPTY, catchError } from "rxjs";

const GATEWAY = "http://127.0.0.1:8000";
const PORT = 5174;
const HEADERS = {}; // with API keys: { Authorization: `Bearer ${process.env.BABELGATE_KEY}` }
const FILES = { "/": "index.html", "/app.js": "app.js", "/app.css": "app.css" };
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css" };

const urlOf = (agent, ...path) => [GATEWAY, "ag-ui", encodeURIComponent(agent), ...path].join("/");
const agentAt = (url, headers = {}) => new HttpAgent({ url, headers: { ...headers, ...HEADERS } });

/** Runner that reads conversations from the gateway, so they survive a restart of this process. */
class GatewayRunner extends InMemoryAgentRunner {
  connect({ threadId, agentId, headers }) {
    const input = { threadId, messages: [], state: {}, tools: [], context: [], forwardedProps: {} };
    const isNew = (error) => error.status === 404; // the thread has no run yet
    const rethrow = (error) => { throw error; };
    return agentAt(urlOf(agentId, "connect"), headers).run(input).pipe(
      catchError((error) => (isNew(error) ? EMPTY : rethrow(error))),
    );
  }
}

/** Return the names of the gateway's agents. */
async function agentNames() {
  const response = await fetch(`${GATEWAY}/acp/agents?limit=1000`, { headers: HEADERS });
  return (await response.json()).agents.map(({ name }) => name);
}

const agents = Object.fromEntries((await agentNames()).map((name) => [name, agentAt(urlOf(name))]));
const runtime = new CopilotRuntime({ agents, runner: new GatewayRunner() });
const handle = createCopilotNodeHandler(createCopilotRuntimeHandler({ runtime, basePath: "/copilotkit" }));

createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://page");
  const file = FILES[pathname];
  if (!file) return handle(request, response);
  response.setHeader("Content-Type", TYPES[file.split(".")[1]]);
  response.end(await readFile(new URL(`public/${file}`, import.meta.url)));
}).listen(PORT, "127.0.0.1", () => console.log(`http://127.0.0.1:${PORT}/`));
