"""Programs that call an agent over OpenAI's APIs."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import curl, program
from babelgate.adapters.openai.carries import CHAT_VERSION, RESPONSES_VERSION

_RESPONSES: Final = """\
# pip install openai
import os

from openai import OpenAI

client = OpenAI(base_url="<URL>/v1", api_key=os.environ["<KEY>"])
response = client.responses.create(model="<AGENT>", input="Hello")
print(response.output_text)
"""
_CHAT: Final = """\
# pip install openai
import os

from openai import OpenAI

client = OpenAI(base_url="<URL>/v1", api_key=os.environ["<KEY>"])
messages = [{"role": "user", "content": "Hello"}]
completion = client.chat.completions.create(model="<AGENT>", messages=messages)
print(completion.choices[0].message.content)
"""
_RESPONSES_TYPESCRIPT: Final = """\
// npm install openai
import OpenAI from "openai";

const client = new OpenAI({ baseURL: "<URL>/v1", apiKey: process.env.<KEY> });
const response = await client.responses.create({ model: "<AGENT>", input: "Hello" });
console.log(response.output_text);
"""
_CHAT_TYPESCRIPT: Final = """\
// npm install openai
import OpenAI from "openai";

const client = new OpenAI({ baseURL: "<URL>/v1", apiKey: process.env.<KEY> });
const completion = await client.chat.completions.create({
  model: "<AGENT>",
  messages: [{ role: "user", content: "Hello" }],
});
console.log(completion.choices[0].message.content);
"""


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return example programs for each of the two APIs: a curl command, and programs with OpenAI's SDKs for Python and
    TypeScript."""
    url = f"{base_url}/v1"
    messages = [{"role": "user", "content": "Hello"}]
    chat = {"model": agent, "messages": messages}
    responses = partial(program, "openai, responses", version=RESPONSES_VERSION, url=base_url, agent=agent)
    completions = partial(program, "openai, chat completions", version=CHAT_VERSION, url=base_url, agent=agent)
    return (
        curl("curl, responses", f"{url}/responses", {"model": agent, "input": "Hello"}, version=RESPONSES_VERSION),
        responses("python", _RESPONSES),
        responses("typescript", _RESPONSES_TYPESCRIPT),
        curl("curl, chat completions", f"{url}/chat/completions", chat, version=CHAT_VERSION),
        completions("python", _CHAT),
        completions("typescript", _CHAT_TYPESCRIPT),
    )
