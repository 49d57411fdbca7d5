"""What the names and ids of requests lead to."""

from typing import Final
from uuid import UUID

from canonical import AgentInfo, FaultCode, FaultError, Hub

_PREFIX: Final = "chatcmpl-"


def find_agent(hub: Hub, model: str) -> AgentInfo:
    """Raises not_found."""
    try:
        return hub.agent(model)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        # OpenAI's code; official clients and this gateway's own tell by it that the path is right.
        words = f"The model {model[:100]!r} does not exist."
        raise FaultError(
            FaultCode.NOT_FOUND,
            words,
            openai={"code": "model_not_found"},
            errors=[{"field": "model", "description": words}],
        ) from error


def completion_id(run_id: str) -> str:
    return _PREFIX + run_id


def run_of(found: str) -> str:
    """Raises not_found."""
    try:
        run_id = str(UUID(found.removeprefix(_PREFIX)))
    except ValueError as error:
        raise no_completion(found) from error
    if found != completion_id(run_id):
        raise no_completion(found)
    return run_id


def no_completion(found: str) -> FaultError:
    return FaultError(FaultCode.NOT_FOUND, f"No completion is stored under the id {found[:100]!r}.")
