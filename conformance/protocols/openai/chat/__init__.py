"""OpenAI's chat completions."""

from typing import Any, Final

from babelgate.conformance.probe import Opened, Options, Probes, Suite
from babelgate.conformance.protocols.openai import common
from babelgate.conformance.protocols.openai.chat import answers, calls, errors, streams
from babelgate.conformance.protocols.openai.chat.scenes import user
from babelgate.conformance.protocols.openai.target import Server, base_of, open_at
from babelgate.conformance.wire.http import Wire

__all__ = ("SUITE",)


async def _open(wire: Wire, url: str, options: Options, is_told: bool) -> Opened[Server]:
    names = ("createChatCompletion.request", "ChatCompletion", "ChatCompletionChunk")
    return await open_at(Server(wire, base_of(url), "chat/completions", names, _ask), options, is_told)


def _ask(text: str) -> dict[str, Any]:
    return {"messages": [user(text)]}


SUITE: Final[Suite[Server]] = Suite(
    _open, Probes(common.models, common.probes, answers.probes, streams.probes, calls.probes, errors.probes)
)
