// The official Anthropic client for TypeScript, driven by JSON lines (see lines.py). Options: base_url, key.

import { createInterface } from "node:readline";

const { default: Anthropic } = await import(process.env.ANTHROPIC_SDK);
const options = JSON.parse(process.argv[2] ?? "{}");
const client = new Anthropic({ baseURL: options.base_url, apiKey: options.key ?? "nothing" });

const calls = {
  async models() {
    const models = [];
    for await (const model of client.models.list()) models.push(model);
    return models;
  },
  model: ({ name }) => client.models.retrieve(name),
  create: (body) => client.messages.create(body),
  // Yield the types of a stream's events, and then the message that the client has built from them.
  async *events(body) {
    const stream = client.messages.stream(body);
    for await (const event of stream) yield { type: event.type };
    yield await stream.finalMessage();
  },
  count: (body) => client.messages.countTokens(body),
};

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
console.debug = console.info = console.log = console.warn = (...words) => process.stderr.write(`${words.join(" ")}\n`);
say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, call, args } = JSON.parse(line);
  if (id === undefined) continue;
  try {
    const answer = calls[call](args);
    if (answer[Symbol.asyncIterator]) {
      for await (const event of answer) say({ id, event });
      say({ id, done: true });
    } else say({ id, done: true, result: await answer });
  } catch (error) {
    const { status, error: body, requestID: request_id } = error;
    say({ id, error: { type: error.constructor.name, message: error.message, data: { status, body, request_id } } });
  }
}
