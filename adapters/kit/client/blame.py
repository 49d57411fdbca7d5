"""Who is to blame: what breaks the protocol in an answer is the fault of the agent's server."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel

from babelgate.adapters.kit.json import validate
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import Json

M = TypeVar("M", bound=BaseModel)


@contextmanager
def blaming_the_agent() -> Generator[None]:
    """What breaks the protocol here is the agent's server, and not whoever called the gateway: agent_invalid instead of
    invalid. Other faults pass. Raises agent_invalid."""
    try:
        yield
    except FaultError as error:
        if error.fault.code is not FaultCode.INVALID:
            raise
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent breaks its protocol: {error.fault.message}") from error


def decode_reply(model: type[M], value: Json) -> M:
    """A server's answer as a message of its protocol. Raises agent_invalid."""
    with blaming_the_agent():
        return validate(model, value)
