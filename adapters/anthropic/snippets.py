"""Programs that call an agent over the Messages API."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from babelgate.adapters.anthropic.carries import VERSION
from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import curl, program

_PYTHON: Final = """\
# pip install anthropic
import os

from anthropic import Anthropic

client = Anthropic(base_url="<URL>", api_key=os.environ["<KEY>"])
messages = [{"role": "user", "content": "Hello"}]
message = client.messages.create(model="<AGENT>", max_tokens=1024, messages=messages)
print(message.content[0].text)
"""
_TYPESCRIPT: Final = """\
// npm install @anthropic-ai/sdk
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: "<URL>", apiKey: process.env.<KEY> });
const message = await client.messages.create({
  model: "<AGENT>",
  max_tokens: 1024,
  messages: [{ role: "user", content: "Hello" }],
});
console.log(message.content.map((block) => (block.type === "text" ? block.text : "")).join(""));
"""


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return a curl command, and programs with the official SDKs for Python and TypeScript."""
    body = {"model": agent, "max_tokens": 1024, "messages": [{"role": "user", "content": "Hello"}]}
    sdk = partial(program, "anthropic", version=VERSION, url=base_url, agent=agent)
    return (
        curl("curl", f"{base_url}/v1/messages", body, version=VERSION),
        sdk("python", _PYTHON),
        sdk("typescript", _TYPESCRIPT),
    )
