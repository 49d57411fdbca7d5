"""Trial of an agent: tests of all rules of the contract, each with new agents."""

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from babelgate.canonical import Agent, Event, Message
from babelgate.canonical.value import Json
from babelgate.conformance.contract.dialogue import Dialogue, start_run
from babelgate.conformance.contract.referee import Broken, Transcript

STRANGE: tuple[str | Message | dict[str, Any], ...] = (
    "",
    "\0",
    "\u2028 \U0001f600",
    "x" * 10_000,
    Message(role="user"),
    {},
    {"a": [None, {}]},
)

_MAX_EVENTS = 50
"""Maximum number of events after which the trial closes a run, and of answers in one task. Chosen."""
_MAX_ITERATIONS = 400
"""Maximum number of event-loop iterations after which the trial cancels a run. Chosen."""


async def check_agent(
    make: Callable[[], Agent],
    *,
    text: str = "Hello, 2 worlds",
    answer: Json = "yes",
    same: bool = True,
    strange: Sequence[str | Message | dict[str, Any]] = STRANGE,
    bound: float = 30,
) -> None:
    """Test all rules of the contract with agents that `make` returns.

    Args:
        text: Input of each task.
        answer: Answer to each question of the agent.
        same: True if equal inputs give equal output; otherwise outputs are not compared.
        strange: Inputs for which the agent may have any output that is allowed.
        bound: Maximum duration of a run, a cancellation or a close, in seconds.

    Raises:
        Broken: with the first rule that an agent broke.
    """
    trial = _Trial(make, text, answer, same, tuple(strange), bound)
    for check in (
        trial.a_task_is_played_to_its_end,
        trial.no_input_is_too_strange,
        trial.an_ended_run_stays_ended,
        trial.a_run_that_never_began_is_closed,
        trial.a_run_is_closed_after_any_event,
        trial.a_run_is_cancelled_at_any_await,
        trial.runs_at_once_do_not_mix,
        trial.the_call_is_not_changed,
    ):
        await trial.tidily(check)


@dataclass(frozen=True)
class _Trial:
    make: Callable[[], Agent]
    text: str
    answer: Json
    same: bool
    strange: tuple[str | Message | dict[str, Any], ...]
    bound: float

    async def tidily(self, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a test and wait until all asyncio tasks that it started have ended. Raises Broken if one is still running
        after `bound` seconds."""
        before = asyncio.all_tasks()
        await check()
        left = asyncio.all_tasks() - before
        if left:
            _, left = await asyncio.wait(left, timeout=self.bound)
        if left:
            raise Broken("a run leaves nothing running behind", f"{len(left)} tasks after {check.__name__}")

    def dialogue(self, agent: Agent | None = None) -> Dialogue:
        return Dialogue(agent or self.make(), bound=self.bound)

    async def play(self, text: str, agent: Agent | None = None) -> list[Transcript]:
        """Run a task from its input to its end, and answer all its questions. `agent` runs it, or a new agent if it is
        None. Return a transcript of each run. Raises Broken if the questions do not end."""
        dialogue = self.dialogue(agent)
        transcripts = [await dialogue.say(text)]
        while dialogue.questions and len(transcripts) < _MAX_EVENTS:
            transcripts.append(await dialogue.answer(*(self.answer for _ in dialogue.questions)))
        if dialogue.questions:
            raise Broken("a task comes to an end", f"still asking after {_MAX_EVENTS} answers")
        return transcripts

    async def a_task_is_played_to_its_end(self) -> None:
        first, second = await self.play(self.text), await self.play(self.text)
        if self.same and [transcript.words for transcript in first] != [transcript.words for transcript in second]:
            raise Broken("two fresh agents say the same", f"{first} and {second}")

    async def no_input_is_too_strange(self) -> None:
        await asyncio.gather(*(self.dialogue().say(strange) for strange in self.strange))

    async def an_ended_run_stays_ended(self) -> None:
        events = start_run(self.make(), self.dialogue().call(self.text))
        async with asyncio.timeout(self.bound):
            try:
                async for _ in events:
                    pass
            except Exception:
                pass
            for _ in range(2):
                if await anext(events, None) is not None:
                    raise Broken("an ended run stays ended", "it yielded another event")
            await events.aclose()

    async def a_run_that_never_began_is_closed(self) -> None:
        await self._close(start_run(self.make(), self.dialogue().call(self.text)), "before its first event")

    async def a_run_is_closed_after_any_event(self) -> None:
        for count in range(1, _MAX_EVENTS):
            events = start_run(self.make(), self.dialogue().call(self.text))
            received = 0
            try:
                async with asyncio.timeout(self.bound):
                    while received < count and await anext(events, None) is not None:
                        received += 1
            except Exception:
                received = 0
            await self._close(events, f"after {received} events")
            if received < count:
                return

    async def _close(self, events: AsyncGenerator[Event], when: str) -> None:
        try:
            async with asyncio.timeout(self.bound):
                await events.aclose()
        except Exception as error:
            raise Broken("closing is clean", f"{type(error).__name__} when closed {when}: {error}") from error
        if await anext(events, None) is not None:
            raise Broken("a closed run says nothing more", f"it did when closed {when}")

    async def a_run_is_cancelled_at_any_await(self) -> None:
        """Start a run again and again, and cancel it each time after more iterations of the event loop: 0, 1, 2, and so
        on with growing gaps. Each iteration is one more `await` of the agent. Raises Broken if a cancelled run does not
        end."""
        turns = 0
        while turns < _MAX_ITERATIONS:
            agent = self.make()
            run = asyncio.get_running_loop().create_task(_consume(start_run(agent, self.dialogue().call(self.text))))
            for _ in range(turns):
                await asyncio.sleep(0)
            over = run.done()
            run.cancel()
            done, _ = await asyncio.wait((run,), timeout=self.bound)
            if not done:
                raise Broken("a cancelled run ends within its bound", f"cancelled after {turns} turns of the loop")
            if over:
                return
            turns += 1 + turns // 4

    async def runs_at_once_do_not_mix(self) -> None:
        agent = self.make()
        texts = [f"{self.text} {word}" for word in ("alpha", "beta", "gamma")]
        alone = [await self.play(text) for text in texts]
        together = await asyncio.gather(*(self.play(text, agent) for text in texts))
        for text, one, other in zip(texts, alone, together, strict=True):
            if self.same and [transcript.words for transcript in one] != [transcript.words for transcript in other]:
                raise Broken("runs at once do not mix", f"{text!r} was answered otherwise beside others")

    async def the_call_is_not_changed(self) -> None:
        call = self.dialogue().call(self.text)
        configured = call.input.replace(config={"a": {"b": [1]}})
        call = replace(call, input=configured, metadata={"c": {"d": [2]}})
        before = copy.deepcopy((call.config, call.metadata, call.messages, call.data))
        async with asyncio.timeout(self.bound):
            await _consume(start_run(self.make(), call))
        if before != (call.config, call.metadata, call.messages, call.data):
            raise Broken("an agent does not change its call", "it did")


async def _consume(events: AsyncGenerator[Event]) -> None:
    async with aclosing(events):
        try:
            async for _ in events:
                pass
        except Exception:
            return  # How a run fails is judged where its events are read.
