"""Requests that read a run as a stored response or as a stored chat completion."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest
from babelgate.adapters.openai.carries import CHAT_VERSION, RESPONSES_VERSION
from babelgate.adapters.openai.codec.model import object_in
from babelgate.adapters.openai.codec.names import RESPONSE, completion_id, encode_id
from babelgate.canonical import RunStatus

_EPHEMERAL: Final = "The run is on a stateless thread, and OpenAI's API finds only what was stored."


def looks(target: LookTarget) -> Sequence[Look]:
    """Return three reads of a run: the response, the response's stream, and the chat completion. A read that is not
    possible has the reason in `why_not`."""
    response = f"/v1/responses/{encode_id(RESPONSE, target.run.run_id)}"
    completion = f"/v1/chat/completions/{completion_id(target.run.run_id)}"
    why_no_response, why_no_completion = _why_no_response(target), _why_no_completion(target)
    return (
        _look(RESPONSES_VERSION, "OpenAI response", response, why_no_response),
        Look(
            version=RESPONSES_VERSION,
            title="OpenAI response stream",
            form="stream",
            request=None if why_no_response else ReadRequest(path=f"{response}?stream=true"),
            why_not=why_no_response,
        ),
        _look(CHAT_VERSION, "OpenAI chat completion", completion, why_no_completion),
    )


def _look(version: str, title: str, path: str, why_not: str) -> Look:
    return Look(version=version, title=title, request=None if why_not else ReadRequest(path=path), why_not=why_not)


def _why_no_response(target: LookTarget) -> str:
    if target.thread.ephemeral:
        return _EPHEMERAL
    if object_in(dict(target.created.extra), "openai").get("store") is False:
        return "The request of this run had store: false."
    return ""


def _why_no_completion(target: LookTarget) -> str:
    if target.thread.ephemeral:
        return _EPHEMERAL
    if not target.run.has_ended:
        return "A completion can be read after its run has ended."
    if target.run.status not in (RunStatus.SUCCESS, RunStatus.PAUSED):
        return f"A run that ended as {target.run.status} has no completion: a request for it gets the error."
    return ""
