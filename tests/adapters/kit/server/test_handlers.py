"""Route handlers that are methods."""

from copy import deepcopy

from babelgate.adapters.kit.server.handlers import Handlers


class Server(Handlers):
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self) -> str:
        return "here"


def test_a_copy_of_a_handler_is_a_method_of_the_same_object() -> None:
    server = Server()
    copied = deepcopy(server.answer)
    assert copied.__self__ is server  # type: ignore[attr-defined]
