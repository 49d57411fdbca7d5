"""Checks of OpenAI's chat completions."""

from typing import Any, Final

from babelgate.conformance.probe import Opened, ProbeOptions, Probes, ProbeSuite
from babelgate.conformance.protocols.openai import common
from babelgate.conformance.protocols.openai.chat import answers, calls, errors, streams
from babelgate.conformance.protocols.openai.chat.scenes import user
from babelgate.conformance.protocols.openai.target import OpenAiTarget, base_of, open_at
from babelgate.conformance.wire.http import Wire

__all__ = ("SUITE",)


async def _open(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[OpenAiTarget]:
    names = ("createChatCompletion.request", "ChatCompletion", "ChatCompletionChunk")
    return await open_at(OpenAiTarget(wire, base_of(url), "chat/completions", names, _ask), options, is_requested)


def _ask(text: str) -> dict[str, Any]:
    return {"messages": [user(text)]}


SUITE: Final[ProbeSuite[OpenAiTarget]] = ProbeSuite(
    _open, Probes(common.models, common.probes, answers.probes, streams.probes, calls.probes, errors.probes)
)
