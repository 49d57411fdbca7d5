"""Route handlers that are methods."""

from copy import deepcopy

from babelgate.adapters.kit.server.handlers import Handlers


class Server(Handlers):
    def __init__(self) -> None:
        self.requests: list[str] = []

    async def answer(self) -> str:
        return "here"


def test_a_copied_handler_keeps_its_object() -> None:
    server = Server()
    copied = deepcopy(server.answer)
    assert copied.__self__ is server  # type: ignore[attr-defined]
