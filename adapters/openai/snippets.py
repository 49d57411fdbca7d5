"""Programs that call an agent over OpenAI's APIs."""

from collections.abc import Sequence
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


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return a command, and a program with the Python SDK, for each API."""
    url = f"{base_url}/v1"
    messages = [{"role": "user", "content": "Hello"}]
    chat = {"model": agent, "messages": messages}
    return (
        curl("curl, responses", f"{url}/responses", {"model": agent, "input": "Hello"}, version=RESPONSES_VERSION),
        program("openai, responses", "python", _RESPONSES, version=RESPONSES_VERSION, url=base_url, agent=agent),
        curl("curl, chat completions", f"{url}/chat/completions", chat, version=CHAT_VERSION),
        program("openai, chat completions", "python", _CHAT, version=CHAT_VERSION, url=base_url, agent=agent),
    )
