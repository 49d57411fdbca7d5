// The runtime of CopilotKit on a free port, in front of agents of a gateway. Options: base_url, agents.

import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

console.log = console.info = console.debug = console.warn = console.error; // stdout is for the test
process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";
process.env.DO_NOT_TRACK = "1";

const { base_url, agents } = JSON.parse(process.argv[2]);
const load = async (path) => await import(pathToFileURL(path).href);
const { CopilotRuntime, createCopilotRuntimeHandler } = await load(process.env.COPILOTKIT);
const { HttpAgent } = await load(process.env.AG_UI);

const runtime = new CopilotRuntime({
  agents: Object.fromEntries(agents.map((name) => [name, new HttpAgent({ url: `${base_url}/ag-ui/${name}` })])),
});
const handle = createCopilotRuntimeHandler({ runtime, basePath: "/copilotkit" });

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const url = `http://${request.headers.host}${request.url}`;
  const body = request.method === "POST" ? Buffer.concat(chunks) : undefined;
  const found = await handle(new Request(url, { method: request.method, headers: request.headers, body }));
  response.writeHead(found.status, Object.fromEntries(found.headers));
  if (found.body) for await (const chunk of found.body) response.write(chunk);
  response.end();
});
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`${JSON.stringify({ ready: `http://127.0.0.1:${server.address().port}/copilotkit` })}\n`);
});
process.stdin.resume().on("end", () => process.exit());
