"""Programs that call an agent as a page of the Vercel AI SDK does."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import curl, program
from babelgate.adapters.vercel_ui.carries import VERSION
from babelgate.canonical.value import JsonObject

_TYPESCRIPT: Final = """\
// npm install ai
import { DefaultChatTransport, readUIMessageStream } from "ai";

// In a page: useChat({ transport }).
const headers = { Authorization: `Bearer ${process.env.<KEY>}` };
const transport = new DefaultChatTransport({ api: "<URL>/vercel-ui/<AGENT>", headers });
const stream = await transport.sendMessages({
  chatId: crypto.randomUUID(),
  messages: [{ id: "1", role: "user", parts: [{ type: "text", text: "Hello" }] }],
  trigger: "submit-message",
  messageId: undefined,
  abortSignal: undefined,
});
let message;
for await (message of readUIMessageStream({ stream }));
console.log(JSON.stringify(message.parts));
"""


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return a curl command and a TypeScript program with the AI SDK, which both send a message to an agent."""
    body: JsonObject = {"messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]}
    return (
        curl("curl", f"{base_url}/vercel-ui/{agent}", body, version=VERSION),
        program("ai", "typescript", _TYPESCRIPT, version=VERSION, url=base_url, agent=agent),
    )
