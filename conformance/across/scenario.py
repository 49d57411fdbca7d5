"""Scenarios that are played through each protocol. A scenario yields the moments at which the results of the protocols
are compared."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import Final

from babelgate.conformance.across.driver import Driver, Observation
from babelgate.conformance.across.model import CallerInput, File
from babelgate.conformance.trigger import Trigger
from babelgate.conformance.wire.http import Unanswered

_FILE: Final = File("across.bin", b"\x00\x01\xfe\xff across\r\n", "application/octet-stream")
"""File that the scenario `files` sends. Its bytes are not UTF-8, so protocols that carry text have to encode them."""


@dataclass(frozen=True, slots=True)
class Moment:
    name: str
    observation: Observation
    is_at_rest: bool = True
    """True if the run does not change until the scenario continues, so that it can be read through the other protocols,
    too."""


Play = Callable[[Driver, Trigger], AsyncGenerator[Moment]]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    behaviour: str
    """Behaviour that the agent has to show, one of `conformance.trigger.BEHAVIOURS`. Its trigger is the input."""
    about: str
    play: Play
    needs: str = ""
    """Ability that the protocol needs, as a key of `Driver.lacks`, for example `stream`. Empty if every protocol can
    express the scenario."""


def _input_of(trigger: Trigger) -> CallerInput:
    return CallerInput(trigger.text, data=trigger.data)


async def _plain(driver: Driver, trigger: Trigger) -> AsyncGenerator[Moment]:
    yield Moment("answer", await driver.send(trigger.agent, _input_of(trigger)))


async def _stream(driver: Driver, trigger: Trigger) -> AsyncGenerator[Moment]:
    observation = await driver.send_and_record(trigger.agent, _input_of(trigger))
    yield Moment("stream", observation)
    if "look" not in driver.lacks:
        yield Moment("afterwards", await driver.observe(observation.handle), is_at_rest=False)


async def _turns(driver: Driver, trigger: Trigger) -> AsyncGenerator[Moment]:
    first = await driver.send(trigger.agent, _input_of(trigger))
    yield Moment("first turn", first, is_at_rest=False)
    second = await driver.send(trigger.agent, _input_of(trigger), first.handle)
    is_same = bool(first.handle.thread) and first.handle.thread == second.handle.thread
    conversation = "" if "conversation" in driver.lacks else "the same" if is_same else "another"
    yield Moment("second turn", replace(second, meaning=replace(second.meaning, conversation=conversation)))


async def _question(driver: Driver, trigger: Trigger) -> AsyncGenerator[Moment]:
    paused = await driver.send(trigger.agent, _input_of(trigger))
    yield Moment("asked", paused)
    yield Moment("answered", await driver.answer(paused, trigger.answer))


async def _files(driver: Driver, trigger: Trigger) -> AsyncGenerator[Moment]:
    yield Moment("answer", await driver.send_and_record(trigger.agent, replace(_input_of(trigger), files=(_FILE,))))


async def _tell(driver: Driver, trigger: Trigger) -> AsyncGenerator[Moment]:
    yield Moment("answer", await driver.send_and_record(trigger.agent, _input_of(trigger)))


async def _cancel(driver: Driver, trigger: Trigger) -> AsyncGenerator[Moment]:
    async with driver.stream(trigger.agent, _input_of(trigger)) as live:
        try:
            while not live.read_so_far().meaning.text and await live.next():
                pass
        except Unanswered:
            pass  # An agent that sends no output at first can still be cancelled.
        handle = live.now().handle
        await driver.cancel(handle)
    yield Moment("cancelled", await driver.wait_for_end(handle))


async def _return(driver: Driver, trigger: Trigger) -> AsyncGenerator[Moment]:
    handle = await driver.leave(trigger.agent, _input_of(trigger))
    yield Moment("back", await driver.wait_for_end(handle))


SCENARIOS: Final = (
    Scenario("plain", "plain", "the agent answers a text", _plain),
    Scenario("stream", "stream", "the agent streams an answer, and the client fetches it again", _stream, "stream"),
    Scenario("turns", "plain", "two turns of one conversation", _turns, "turns"),
    Scenario("question", "question", "the agent asks, and continues after the answer", _question, "question"),
    Scenario("questions", "questions", "the agent asks two things at once", _question, "questions"),
    Scenario("approval", "approval", "the agent asks for an approval whose answer has a schema", _question, "approval"),
    Scenario("files", "files", "the agent receives and returns files", _files, "files"),
    Scenario("data", "data", "the answer is structured data", _tell, "data"),
    Scenario("fail", "fail", "the agent fails", _tell),
    Scenario("cancel", "long", "the client cancels a running run", _cancel, "cancel"),
    Scenario("return", "stream", "the client disconnects during the answer and reconnects", _return, "return"),
    Scenario("silence", "silence", "the agent is silent for some seconds in the middle of its answer", _tell),
)
