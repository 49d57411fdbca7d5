"""Tests of the introspection of Python targets: their arguments and their descriptions."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

from babelgate.canonical import AgentInfo, Event, Invocation
from babelgate.canonical.event import Custom
from babelgate.conformance.contract import check_agent
from babelgate.gateway.agents.python.agent import wrap
from tests.gateway.talk import agent, run_agent


class Greeter:
    """Greets.

    More about it."""

    def __call__(self, text: str) -> str:
        return f"hello {text}"


class AsyncGreeter:
    async def __call__(self, text: str) -> str:
        """Answer with a greeting."""
        return f"hello {text}"


def plain(text: str) -> str:
    return f"hello {text}"


async def awaited(text: str) -> str:
    return f"hello {text}"


def generated(text: str) -> Iterator[str]:
    yield "hello "
    yield text


async def async_generated(text: str) -> AsyncIterator[str]:
    yield "hello "
    yield text


def untyped(text):  # type: ignore[no-untyped-def]
    return f"hello {text}"


def stringly(text: "str") -> "str":
    return f"hello {text}"


def of_the_call(call: Invocation) -> str:
    return f"hello {call.text}"


def of_the_call_by_name(call: "Invocation") -> str:
    return f"hello {call.text}"


def prefixed(greeting: str, text: str) -> str:
    return f"{greeting} {text}"


def with_defaults(text: str, mark: str = "", *, more: str = "", **rest: object) -> str:
    return f"hello {text}{mark}{more}"


def gives_a_coroutine(text: str) -> Awaitable[str]:
    return awaited(text)


def gives_a_generator(text: str) -> Iterator[str]:
    return generated(text)


def gives_an_async_generator(text: str) -> AsyncIterator[str]:
    return async_generated(text)


FORMS: list[object] = [
    Greeter(),
    AsyncGreeter(),
    Greeter().__call__,
    plain,
    awaited,
    generated,
    async_generated,
    untyped,
    stringly,
    of_the_call,
    of_the_call_by_name,
    partial(prefixed, "hello"),
    with_defaults,
    gives_a_coroutine,
    gives_a_generator,
    gives_an_async_generator,
    lambda text: f"hello {text}",  # type: ignore[misc]
]


@pytest.mark.parametrize("target", FORMS)
async def test_every_form_of_agent_passes_the_contract(target: object):
    assert (await run_agent(target, "you")).text == "hello you"
    await check_agent(lambda: agent(target))


async def test_a_function_may_have_no_parameters():
    def clock() -> str:
        return "noon"

    assert (await run_agent(clock)).text == "noon"


async def test_an_agent_object_is_not_wrapped():
    class Native:
        """Agent that yields canonical events."""

        async def run(self, call: Invocation) -> AsyncIterator[Event]:
            yield Custom(value=call.text)

    native = Native()
    info, wrapped = wrap(native, "native")
    assert wrapped is native
    assert info.description == "Agent that yields canonical events."


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        (5, "a value of type int is not an agent"),
        (Greeter, "Greeter is a class"),
        (lambda a, b: a, "needs 'b' too"),  # type: ignore[misc]
        (lambda *, a: a, "needs 'a' too"),  # type: ignore[misc]
    ],
)
def test_an_object_that_is_no_agent_is_refused(target: object, complaint: str):
    with pytest.raises(TypeError, match=complaint) as raised:
        wrap(target, "agent")
    assert "\n" not in str(raised.value)


def test_an_argument_of_another_type_is_refused():
    def wrong(number: int) -> str:
        return str(number)

    with pytest.raises(TypeError, match="'number' is annotated int"):
        wrap(wrong, "agent")


@pytest.mark.parametrize("name", ["Echo", "", "a b", "a\n"])
def test_a_name_that_no_agent_has_is_refused(name: str):
    with pytest.raises(TypeError, match="not a valid agent name"):
        wrap(plain, name)


class Count(TypedDict):
    words: int


class Model(BaseModel):
    words: int


@dataclass
class Data:
    words: int


@pytest.mark.parametrize("returned", [Count, Model, Data])
def test_the_schema_of_a_structured_output_is_published(returned: Any):
    def count(text: str): ...

    count.__annotations__["return"] = returned
    info, _ = wrap(count, "count")
    assert info.schemas["output"]["properties"] == {"words": {"title": "Words", "type": "integer"}}
    assert info.output_types == ("application/json",)


class Nested(TypedDict, total=False):
    counts: list[Count]
    by_name: dict[str, Count]


def test_typed_dicts_may_be_nested():
    def count(text: str) -> Nested: ...

    schema = wrap(count, "count")[0].schemas["output"]
    assert "required" not in schema
    assert schema["properties"]["counts"]["items"] == {"$ref": "#/$defs/Count"}
    assert schema["$defs"]["Count"]["properties"] == {"words": {"title": "Words", "type": "integer"}}


def test_a_dict_has_an_object_schema_and_text_has_none():
    def some(text: str) -> dict[str, int]: ...

    assert wrap(some, "some")[0].schemas["output"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert wrap(plain, "plain")[0].schemas == {}
    assert wrap(async_generated, "generated")[0].schemas == {}


def test_the_first_paragraph_of_the_docstring_is_the_description():
    def documented(text: str) -> str:
        """Do
        one thing.

        With an explanation.
        """
        return text

    assert wrap(documented, "a")[0].description == "Do one thing."
    assert wrap(partial(documented), "a")[0].description == "Do one thing."
    assert wrap(Greeter(), "a")[0].description == "Greets."
    assert wrap(AsyncGreeter(), "a")[0].description == "Answer with a greeting."
    assert wrap(plain, "a")[0].description == ""


def test_an_agent_may_override_its_info():
    class Known(Greeter):
        info = AgentInfo(name="ignored", description="Better.", version="2")

    info, _ = wrap(Known(), "known")
    assert (info.name, info.description, info.version) == ("known", "Better.", "2")
