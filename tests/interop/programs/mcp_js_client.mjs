// The official MCP client of JavaScript, driven by JSON lines (see lines.py).
//
// Options: base_url, headers, and `capabilities`, which the client declares.

import { createInterface } from "node:readline";

const { Client } = await import(`${process.env.MCP_JS}/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${process.env.MCP_JS}/client/streamableHttp.js`);

const options = JSON.parse(process.argv[2]);
const client = new Client({ name: "test", version: "1" }, { capabilities: options.capabilities });
const transport = new StreamableHTTPClientTransport(new URL(options.base_url), {
  requestInit: { headers: options.headers },
});
await client.connect(transport);

const calls = {
  // Call a tool, and return its result.
  async call({ name, ...args }) {
    return await client.callTool({ name, arguments: args });
  },
};

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, call, args } = JSON.parse(line);
  if (id === undefined) continue;
  try {
    say({ id, done: true, result: await calls[call](args) });
  } catch (error) {
    const data = { code: error.code, elicitations: error.elicitations };
    say({ id, error: { type: error.constructor.name, message: error.message, data } });
  }
}
process.exit(0);
