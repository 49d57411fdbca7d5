"""Apps of the same handlers: what Litestar works out of signatures is made once, and each app has its own handlers."""

from typing import Any

from litestar import Litestar, get
from litestar.params import FromPath

from tests.bridge import client

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
