"""Checks of OpenAI's responses, in the open form of Open Responses."""

from dataclasses import replace
from typing import Final

from babelgate.conformance.probe import Opened, ProbeOptions, Probes, ProbeSuite
from babelgate.conformance.protocols.openai import common
from babelgate.conformance.protocols.openai.responses import answers, background, calls, errors, stored, streams
from babelgate.conformance.protocols.openai.target import OpenAiTarget, base_of, open_at
from babelgate.conformance.wire.exchange import as_object, dig
from babelgate.conformance.wire.http import Wire

__all__ = ("SUITE",)


async def _open(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[OpenAiTarget]:
    names = ("createResponse.request", "Response", "Event")
    server = OpenAiTarget(wire, base_of(url), "responses", names, lambda text: {"input": text})
    opened = await open_at(server, options, is_requested)
    # Open Responses has no operation to read a response. OpenAI's servers and many others have one.
    url = server.below("responses", "resp_00000000000000000000000000000000")
    unknown = await wire.request("GET", url, sends=None, receives=None)
    if unknown.status == 404 and as_object(dig(unknown.json, "error")) is not None:
        return replace(opened, capabilities=opened.capabilities | {"stored"})
    return opened


SUITE: Final[ProbeSuite[OpenAiTarget]] = ProbeSuite(
    _open,
    Probes(
        common.probes,
        answers.probes,
        streams.probes,
        calls.probes,
        stored.probes,
        background.probes,
        errors.probes,
    ),
)
