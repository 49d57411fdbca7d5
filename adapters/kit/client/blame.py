"""Attribution of protocol errors: an invalid response is a fault of the agent's server, not of the caller."""

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
    """Convert faults with the code `invalid` that the block raises into `agent_invalid`, because the agent's server
    breaks the protocol, not the caller. Other faults pass unchanged."""
    try:
        yield
    except FaultError as error:
        if error.fault.code is not FaultCode.INVALID:
            raise
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent breaks its protocol: {error.fault.message}") from error


def decode_reply(model: type[M], value: Json) -> M:
    """Return a server's response as the message type `model` of its protocol. Raises agent_invalid if it does not
    match."""
    with blaming_the_agent():
        return validate(model, value)
