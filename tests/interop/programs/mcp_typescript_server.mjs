// Tools of the MCP SDK for TypeScript, one for each behavior of a call: over stdio with the argument `stdio`, and over
// streamable HTTP on a free port otherwise. A cancelled tool leaves the file `cancelled` in the working directory.

import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const load = async (path) => await import(pathToFileURL(`${process.env.MODULES}/${path}`).href);
const sdk = "@modelcontextprotocol/sdk/dist/esm";
const { McpServer } = await load(`${sdk}/server/mcp.js`);
const { StdioServerTransport } = await load(`${sdk}/server/stdio.js`);
const { StreamableHTTPServerTransport } = await load(`${sdk}/server/streamableHttp.js`);
const { ElicitResultSchema } = await load(`${sdk}/types.js`);
const { z } = await load("zod/index.js");

const note = (name) => process.argv[2] === "stdio" && writeFileSync(name, "");
const inputSchema = { text: z.string() };
const said = (text) => ({ content: [{ type: "text", text }] });
const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };

function toolServer() {
  const server = new McpServer({ name: "tools", version: "1" });
  const tool = (name, handle, more = {}) => server.registerTool(name, { description: name, inputSchema, ...more }, handle);
  tool("echo", async ({ text }) => said(text));
  tool("fail", async ({ text }) => {
    throw new Error(`Error executing tool fail: ${text}`);
  });
  tool("steps", async ({ text }, { _meta, sendNotification }) => {
    for (const progress of [1, 2, 3]) {
      const params = { progressToken: _meta.progressToken, progress, total: 3 };
      await sendNotification({ method: "notifications/progress", params });
    }
    return said(text);
  });
  tool("slow", async ({ text }, { signal }) => {
    note("started");
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    note("cancelled");
    return said(text);
  });
  tool("crash", async () => process.exit(7));
  tool("form", async ({ text }, { sendRequest }) => {
    const params = { mode: "form", message: "What is your name?", requestedSchema };
    const answer = await sendRequest({ method: "elicitation/create", params }, ElicitResultSchema);
    return said(answer.action === "accept" ? `${text} ${answer.content.name}` : `${text} ${answer.action}`);
  });
  const count = async ({ text }) => {
    const words = { words: text.split(" ").length };
    return { ...said(JSON.stringify(words)), structuredContent: words };
  };
  tool("count", count, { outputSchema: { words: z.number() } });
  tool("picture", async ({ text }) => {
    const image = { type: "image", data: Buffer.from([0x89, 0x50, 0x4e, 0x47]).toString("base64"), mimeType: "image/png" };
    const link = { type: "resource_link", uri: "note://one", name: "note.txt", mimeType: "text/plain" };
    return { content: [{ type: "text", text }, image, link] };
  });
  const contents = [{ uri: "note://one", mimeType: "text/plain", text: "Noted." }];
  server.registerResource("note", "note://one", { mimeType: "text/plain" }, async () => ({ contents }));
  return server;
}

if (process.argv[2] === "stdio") {
  await toolServer().connect(new StdioServerTransport());
} else {
  const transports = new Map();
  const server = createServer(async (request, response) => {
    let transport = transports.get(request.headers["mcp-session-id"]);
    if (!transport) {
      const onsessioninitialized = (id) => transports.set(id, transport);
      transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
      await toolServer().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  server.listen(0, "127.0.0.1", () => {
    process.stdout.write(`${JSON.stringify({ ready: `http://127.0.0.1:${server.address().port}` })}\n`);
  });
  process.stdin.resume().on("end", () => process.exit());
}
