// Chats of the Vercel AI SDK, driven by JSON lines (see lines.py). A chat is the SDK's AbstractChat, from which useChat
// differs only in the state that React reads.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const ENTRY = { "ai-7": "dist/index.js" };
const load = (name, entry = ENTRY[name] ?? "dist/index.mjs") =>
  import(pathToFileURL(`${process.env.VERCEL_AI}/${name}/${entry}`).href);
console.log = console.info = console.warn = console.error; // stdout is for the test
const sdks = {};
for (const name of ["ai-5-strict", "ai-5", "ai-6", "ai-7"]) sdks[name] = await load(name);

const { WorkflowChatTransport } = await load("@ai-sdk/workflow", "dist/client.js");
const { AssistantChatTransport } = await load("@assistant-ui/ai-sdk", "dist/transport/AssistantChatTransport.js");

class State {
  constructor(messages) {
    this.status = "ready";
    this.error = undefined;
    this.messages = messages;
  }
  pushMessage = (message) => {
    this.messages = this.messages.concat(structuredClone(message));
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = [...this.messages.slice(0, index), structuredClone(message), ...this.messages.slice(index + 1)];
  };
  snapshot = (value) => structuredClone(value);
}

const chats = {};
let waiters = [];
const changed = () => {
  const woken = waiters;
  waiters = [];
  for (const wake of woken) wake();
};

const automatic = (sdk, auto) => {
  if (auto === "tools") return { sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithToolCalls };
  if (auto === "approvals") return { sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithApprovalResponses };
  return {};
};

// Return a response whose body ends, or breaks, after a number of frames.
const cutAfter = (response, frames, breaks) => {
  const decoder = new TextDecoder();
  let rest = "";
  let seen = 0;
  const cut = new TransformStream({
    transform(bytes, controller) {
      rest += decoder.decode(bytes, { stream: true });
      for (let end; (end = rest.indexOf("\n\n")) >= 0 && seen < frames; seen += 1) {
        controller.enqueue(new TextEncoder().encode(rest.slice(0, end + 2)));
        rest = rest.slice(end + 2);
      }
      if (seen < frames) return;
      if (breaks) controller.error(new TypeError("network error"));
      else controller.terminate();
    },
  });
  return new Response(response.body.pipeThrough(cut), response);
};

const makeTransport = (sdk, kind, options, { context, storage, api }) => {
  if (kind === "workflow") return new WorkflowChatTransport(options);
  if (kind !== "assistant") return new sdk.DefaultChatTransport(options);
  const resumable = { storage, resumeApi: (id) => `${api}/${id}/stream` };
  const transport = new AssistantChatTransport({ ...options, resumable });
  const mainItem = { initialize: async () => ({}) };
  transport.setRuntime({ thread: { getModelContext: () => context }, threads: { mainItem } });
  return transport;
};

// Where AssistantChatTransport keeps the id of its stream.
const makeStorage = () => {
  const ids = {};
  return {
    getStreamId: (thread) => ids[thread] ?? null,
    setStreamId: (id, thread) => (ids[thread] = id),
    clear: (thread) => delete ids[thread],
  };
};

const open = ({ sdk: name, id, api, headers, auto, messages = [], outputs = {}, ...rest }) => {
  const { only_last, body, transport: kind, context, cut, breaks } = rest;
  const sdk = sdks[name];
  const log = { requests: 0, calls: [], finished: [], errors: [], data: [] };
  const counted = async (input, init) => {
    log.requests += 1;
    const isFirst = log.requests === 1;
    changed();
    const response = await fetch(input, init);
    return isFirst && cut !== undefined ? cutAfter(response, cut, breaks) : response;
  };
  const prepare = only_last
    ? { prepareSendMessagesRequest: ({ id, messages }) => ({ body: { id, message: messages.at(-1) } }) }
    : {};
  const storage = makeStorage();
  const options = { api, headers, body, fetch: counted, ...prepare };
  const transport = makeTransport(sdk, kind, options, { context, storage, api });
  class Chat extends sdk.AbstractChat {}
  const state = new State(messages);
  const chat = new Chat({
    id,
    state,
    transport,
    ...automatic(sdk, auto),
    onToolCall: ({ toolCall }) => {
      log.calls.push(toolCall.toolName);
      if (toolCall.dynamic || !(toolCall.toolName in outputs)) return;
      const { toolName: tool, toolCallId } = toolCall;
      void chat.addToolOutput({ tool, toolCallId, output: outputs[tool] });
    },
    onFinish: ({ message, finishReason, isAbort, isError }) => {
      log.finished.push({ id: message.id, finishReason, isAbort, isError });
      changed();
    },
    onData: (part) => log.data.push(part),
    onError: (error) => log.errors.push(error.message),
  });
  chats[id] = { sdk, chat, log };
};

const view = (id) => {
  const { chat, log } = chats[id];
  return { status: chat.status, error: chat.error?.message ?? null, messages: chat.messages, ...log };
};

// Wait until the chat is idle and its last message satisfies what the test waits for.
const settle = async (id, requests = 0) => {
  const { chat, log } = chats[id];
  while (chat.status === "submitted" || chat.status === "streaming" || log.requests < requests) {
    await new Promise((wake) => {
      waiters.push(wake);
      setTimeout(wake, 20);
    });
  }
  return view(id);
};

const calls = {
  open: async (args) => open(args),
  async send({ id, text, files, message_id: messageId, metadata }) {
    const message = text === undefined ? undefined : { text, files, messageId, metadata };
    await chats[id].chat.sendMessage(message);
    return view(id);
  },
  // Send a message or, without a text, resume. Return when the last message of the chat contains `until`.
  async start({ id, text, until }) {
    const { chat } = chats[id];
    void (text === undefined ? chat.resumeStream() : chat.sendMessage({ text }));
    while (!JSON.stringify(chat.messages.at(-1) ?? "").includes(until)) await new Promise((wake) => setTimeout(wake, 5));
    return view(id);
  },
  async regenerate({ id, message_id: messageId }) {
    await chats[id].chat.regenerate({ messageId });
    return view(id);
  },
  async stop({ id }) {
    await chats[id].chat.stop();
    return settle(id);
  },
  async resume({ id }) {
    await chats[id].chat.resumeStream();
    return view(id);
  },
  async add_output({ id, tool, call_id: toolCallId, output, requests }) {
    await chats[id].chat.addToolOutput({ tool, toolCallId, output });
    return settle(id, requests);
  },
  async approve({ id, approval_id, approved, reason, requests }) {
    await chats[id].chat.addToolApprovalResponse({ id: approval_id, approved, reason });
    return settle(id, requests);
  },
  async settle({ id, requests }) {
    return settle(id, requests);
  },
  // Parse a stream as the transport does, build its message, and check the message as a server of the SDK does.
  async parse({ sdk: name, body, message, validates = true }) {
    const sdk = sdks[name];
    const bytes = new Response(body).body;
    const stream = sdk.parseJsonEventStream({ stream: bytes, schema: sdk.uiMessageChunkSchema });
    const chunks = [];
    for await (const chunk of stream) {
      if (!chunk.success) throw chunk.error;
      chunks.push(chunk.value);
    }
    const fed = new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk);
        controller.close();
      },
    });
    const errors = [];
    let built = message;
    const options = { stream: fed, message, onError: (error) => errors.push(error.message) };
    for await (const each of sdk.readUIMessageStream(options)) built = each;
    if (validates) await sdk.validateUIMessages({ messages: [built] });
    return { chunks, message: built, errors };
  },
  async validate({ sdk: name, messages }) {
    await sdks[name].validateUIMessages({ messages });
  },
};

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, call, args } = JSON.parse(line);
  if (id === undefined) continue;
  calls[call](args).then(
    (result) => say({ id, done: true, result: result ?? null }),
    (error) => say({ id, error: { type: error.name, message: error.message, data: null } }),
  );
}
