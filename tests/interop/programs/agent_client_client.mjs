// Client of the Agent Client Protocol SDK for TypeScript, driven by JSON lines (see lines.py).

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const load = (path) => import(pathToFileURL(`${process.env.AGENT_CLIENT}/@agentclientprotocol/sdk/dist/${path}`).href);
console.log = console.info = console.warn = console.error; // stdout is for the test
const { client, methods, ndJsonStream } = await load("v1/stable/acp.js");
const { createWebSocketStream } = await load("transports/ws-stream.js");

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

// Send prompts in a new session, over a WebSocket or to a command, and load the session in the end.
const converse = async ({ texts, url, command, content }) => {
  let updates = [];
  const asked = [];
  let child;
  let stream;
  if (command) {
    child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
    stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  } else {
    stream = createWebSocketStream(url);
  }
  const app = client({ name: "test" })
    .onNotification(methods.client.session.update, ({ params }) => updates.push(params.update))
    .onRequest(methods.client.session.requestPermission, ({ params }) => {
      asked.push(params.options.map((option) => option.optionId));
      return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
    })
    .onRequest(methods.client.elicitation.create, ({ params }) => {
      asked.push(params);
      return { action: "accept", content };
    });
  const found = await app.connectWith(stream, async (agent) => {
    const clientCapabilities = content ? { elicitation: { form: {} } } : {};
    const initialized = await agent.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities });
    const session = { cwd: "/work", mcpServers: [] };
    const { sessionId } = await agent.request(methods.agent.session.new, session);
    const results = [];
    for (const text of texts) {
      const prompt = [{ type: "text", text }];
      results.push(await agent.request(methods.agent.session.prompt, { sessionId, prompt }));
    }
    const seen = updates;
    updates = [];
    await agent.request(methods.agent.session.load, { sessionId, ...session });
    const listed = await agent.request(methods.agent.session.list, { cwd: "/work" });
    const sessions = listed.sessions.filter((each) => each.sessionId === sessionId).length;
    return { initialized, results, updates: seen, asked, loaded: updates, sessions };
  });
  child?.stdin.end();
  return found;
};

say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, args } = JSON.parse(line);
  if (id === undefined) continue;
  converse(args).then(
    (result) => say({ id, done: true, result }),
    (error) => say({ id, error: { type: error.name, message: error.message, data: error.data ?? null } }),
  );
}
process.exit(0);
