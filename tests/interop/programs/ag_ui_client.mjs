// The official AG-UI client, driven by JSON lines (see lines.py). An agent keeps its conversation between calls.

import { createInterface } from "node:readline";

const { HttpAgent } = await import(process.env.AG_UI);
const options = JSON.parse(process.argv[2] ?? "{}");

const agents = new Map();

function agentOf({ conversation, agent, threadId }) {
  if (!agents.has(conversation)) {
    const url = `${options.base_url}/ag-ui/${agent}`;
    agents.set(conversation, new HttpAgent({ url, threadId, headers: options.headers ?? {} }));
  }
  return agents.get(conversation);
}

const calls = {
  // Run the agent with a new message, or without one, and yield each event. The result has the client's own view.
  async *run({ conversation, agent, threadId, text, messages, state, abortAfter, ...parameters }) {
    const found = agentOf({ conversation, agent, threadId });
    if (text !== undefined) found.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
    for (const message of messages ?? []) found.addMessage(message);
    if (state !== undefined) found.setState(state);
    const events = [];
    let wake = () => {};
    const subscriber = {
      onEvent({ event }) {
        events.push(event);
        if (event.type === abortAfter) found.abortRun();
        wake();
      },
    };
    let ended = false;
    let failure;
    const running = found
      .runAgent(parameters, subscriber)
      .catch((error) => (failure = error))
      .finally(() => ((ended = true), wake()));
    while (!ended || events.length) {
      if (events.length) yield events.shift();
      else await new Promise((resolve) => (wake = resolve));
    }
    await running;
    if (failure) throw failure;
  },
  // Return what the client holds of a conversation.
  async view({ conversation }) {
    const { messages, state, threadId } = agents.get(conversation);
    return { messages, state, threadId };
  },
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
    const { status, payload } = error;
    say({ id, error: { type: error.name, message: error.message, data: { status, payload } } });
  }
}
