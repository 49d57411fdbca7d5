from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Ask, Invocation, Message, TextPart
from babelgate.canonical.event import Custom
from tests.adapters.acp.site import Site, opened


async def same(text: str) -> str:
    return text


async def whole(text: str) -> Message:
    return Message(parts=(TextPart(text="a"), TextPart(text="b")))


async def moody(text: str) -> AsyncGenerator[Any]:
    yield Custom(name="mood", value="good")
    yield "Fine."


async def urls(call: Invocation) -> str:
    return ", ".join(file.url or "?" for file in call.files)


async def recall(call: Invocation) -> str:
    """Return the earlier messages, each with its role."""
    return "; ".join(f"{each.role}: {each.text}" for each in call.history)


async def asks(text: str) -> AsyncGenerator[Any, Any]:
    yield "Before."
    yield Ask("Well?")
    yield "After."


async def twice(text: str) -> AsyncGenerator[Any, Any]:
    first = yield Ask("First name?")
    last = yield Ask("Last name?")
    yield f"{first} {last}"


async def login(text: str) -> AsyncGenerator[Any, Any]:
    yield Ask("Log in at https://login.example.com", kind="auth")
    yield "In."


AGENTS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("slow_echo", "a.b", "a-b"), same),
    **{agent.__name__: agent for agent in (whole, moody, urls, recall, asks, twice, login)},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with opened(tmp_path_factory.mktemp("acp"), AGENTS, continuable=("echo",)) as opened_site:
        yield opened_site


@pytest.fixture
def site(module_site: Site) -> Site:
    """Gateway of the module, with its gate closed."""
    module_site.gate.clear()
    return module_site
