"""Programs that call an agent over AG-UI."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.ag_ui.carries import VERSION
from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import curl, program

_TYPESCRIPT: Final = """\
// npm install @ag-ui/client
import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({
  url: "<URL>/ag-ui/<AGENT>",
  headers: { Authorization: `Bearer ${process.env.<KEY>}` },
});
agent.addMessage({ id: crypto.randomUUID(), role: "user", content: "Hello" });
const { newMessages } = await agent.runAgent();
console.log(newMessages.map((message) => message.content).join(""));
"""


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return two examples that start a run of the agent: a `curl` command, and a TypeScript program that uses
    @ag-ui/client."""
    message = {"id": "message-1", "role": "user", "content": "Hello"}
    body = {"threadId": "thread-1", "runId": "run-1", "protocolVersion": VERSION, "messages": [message]}
    return (
        curl("curl", f"{base_url}/ag-ui/{agent}", body, version=VERSION),
        program("@ag-ui/client", "typescript", _TYPESCRIPT, version=VERSION, url=base_url, agent=agent),
    )
