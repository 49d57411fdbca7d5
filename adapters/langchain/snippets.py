"""Programs that call an agent over LangGraph Platform and the Agent Protocol."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import curl, program

_PYTHON: Final = """\
# pip install langgraph-sdk
import asyncio
import os

from langgraph_sdk import get_client


async def main() -> None:
    client = get_client(url="<URL>", api_key=os.environ["<KEY>"])
    messages = [{"role": "user", "content": "Hello"}]
    state = await client.runs.wait(None, "<AGENT>", input={"messages": messages})
    print(state["messages"][-1]["content"])


asyncio.run(main())
"""
_TYPESCRIPT: Final = """\
// npm install @langchain/langgraph-sdk @langchain/core
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: "<URL>", apiKey: process.env.<KEY> });
const messages = [{ role: "user", content: "Hello" }];
const state = await client.runs.wait(null, "<AGENT>", { input: { messages } });
console.log(state.messages.at(-1).content);
"""


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return example programs that call the agent: a curl command for each dialect, and programs with LangGraph's SDKs
    for Python and TypeScript."""
    messages = [{"role": "user", "content": "Hello"}]
    platform = {"assistant_id": agent, "input": {"messages": messages}}
    protocol = {"agent_id": agent, "messages": messages}
    return (
        curl("curl, LangGraph", f"{base_url}/runs/wait", platform, version="langgraph"),
        program("langgraph-sdk", "python", _PYTHON, version="langgraph", url=base_url, agent=agent),
        program("@langchain/langgraph-sdk", "typescript", _TYPESCRIPT, version="langgraph", url=base_url, agent=agent),
        curl("curl, Agent Protocol", f"{base_url}/agent-protocol/runs/wait", protocol, version="agent-protocol"),
    )
