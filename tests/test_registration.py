"""Apps of the same handlers: what Litestar works out of signatures is made once, and each app has its own handlers."""

from collections.abc import Sequence
from typing import Any

from litestar import Litestar, Router, get
from litestar.params import FromPath

from tests.bridge import client
from tests.registration import registering

PREFIXES = ("a", "b")


def _app(prefix: str) -> Litestar:
    @get("/{word:str}", sync_to_thread=False)
    def say(word: FromPath[str]) -> str:
        return prefix + word

    return Litestar([say], openapi_config=None, logging_config=None)


async def test_two_apps_of_one_handler_have_one_signature_and_answer_for_themselves() -> None:
    apps = [_app(prefix) for prefix in PREFIXES]
    routes: list[Any] = [app.routes[0] for app in apps]
    handlers = [route.route_handler_map["GET"][0] for route in routes]
    assert handlers[0].signature_model is handlers[1].signature_model
    for app, prefix in zip(apps, PREFIXES, strict=True):
        async with client(app) as http:
            assert (await http.get("/word")).text == f"{prefix}word"


async def test_an_app_that_was_left_is_the_next_one_of_the_same_handlers_and_answers_for_that() -> None:
    made: list[Litestar] = []

    def create(handlers: Sequence[Any]) -> Litestar:
        made.append(Litestar(handlers, openapi_config=None, logging_config=None))
        return made[-1]

    with registering(create) as register:
        one, two = (register(_handlers(prefix)) for prefix in PREFIXES)
        for app, prefix in ((one, "a"), (two, "b")):
            await _answers(app, prefix)
    with registering(create) as register:
        again = register(_handlers("c"))
        await _answers(again, "c")
        await _answers(register(_handlers("d")[:1]), "d", "/word")
    assert again in (one, two)
    assert len(made) == 3, "two at once are two, and those of other handlers are none of these"


def _handlers(prefix: str) -> list[Any]:
    class Server:
        async def below(self, word: FromPath[str]) -> str:
            return prefix + word

        def __deepcopy__(self, _: object) -> "Server":
            return self

    @get("/{word:str}")
    async def say(word: FromPath[str]) -> str:
        return prefix + word

    return [say, Router("/below", route_handlers=[get("/{word:str}")(Server().below)])]


async def _answers(app: Litestar, prefix: str, *paths: str) -> None:
    async with client(app) as http:
        for path in paths or ("/word", "/below/word"):
            assert (await http.get(path)).text == f"{prefix}word"
            assert (await http.options(path)).headers["allow"] == "GET, OPTIONS"
