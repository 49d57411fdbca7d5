"""What a probe is, and what it is given.

A probe is an async function of one argument, the context, that tests one requirement. It returns if the requirement is
kept, and raises what is in `babelgate.conformance.verdict` if not:

    @probes.add
    async def task_has_an_id(ctx: Context[Target]) -> None:
        sent = await ctx.once(plain_send)
        check(isinstance(dig(sent.task, "id"), str), "the task has an id", sent.task)

What several probes look at is a scene: an async function that plays it. `ctx.once` plays it once a run and gives
everybody the same result, so that a set of a hundred requirements does not send a hundred messages.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from babelgate.conformance.trigger import Triggers
from babelgate.conformance.verdict import Failed, NotApplicable, NotObserved, NotShown, Prerequisite
from babelgate.conformance.wire.exchange import Exchange
from babelgate.conformance.wire.http import EXCHANGES, Unanswered, Wire

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Options:
    """What the person who asks says of the agent."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of every request: keys."""
    credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """By origin, the header for the user and password that stand in its URL."""
    other_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those of a second caller, to whom the first one's tasks are nobody's business."""
    triggers: Triggers = field(default_factory=Triggers)
    timeout: float = 10.0
    """Seconds that one answer, or the next event of a stream, may take."""
    concurrency: int = 12
    """Probes that run side by side."""
    callback_host: str = "127.0.0.1"
    """The address of this machine by which the agent can reach it, for push notifications."""


class NotSpoken(Exception):
    """The server at the URL does not speak this revision; the message says how that shows."""


@dataclass(frozen=True, slots=True)
class Opened(Generic[T]):
    """An agent that speaks a revision."""

    target: T
    """Whatever the probes need to know of it."""
    endpoint: str
    because: str
    """How it shows that it speaks it."""
    capabilities: frozenset[str] = frozenset()


class Context(Generic[T]):
    def __init__(self, wire: Wire, opened: Opened[T], options: Options) -> None:
        self.wire = wire
        self.target = opened.target
        self.capabilities = opened.capabilities
        self.options = options
        self.triggers = options.triggers
        self._scenes: dict[Any, asyncio.Task[_Played]] = {}

    async def once(
        self, scene: Callable[Concatenate["Context[T]", P], Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """The result of a scene, played by the first who asks. Where it failed, whoever needs it is told so by
        Prerequisite, which this raises."""
        played = await self._play_scene(scene, args, kwargs)
        if played.error is not None:
            raise _copy_error(played.error)
        return played.result

    async def subject(
        self, scene: Callable[Concatenate["Context[T]", P], Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """The same, for the one probe that is about the scene itself: its failure is raised, as the probe's own."""
        played = await self._play_scene(scene, args, kwargs)
        match played.error:
            case None:
                return played.result
            case Failed() as error if type(error) is Failed:
                raise Failed(error.expected, error.got, error.exchange)
            case Unanswered() as error:
                raise Failed(f"an answer: {error}", None, error.exchange)
            case error:
                raise _copy_error(error)

    async def _play_scene(self, scene: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> "_Played":
        key = (scene, args, tuple(sorted(kwargs.items())))
        task = self._scenes.get(key)
        if task is None:
            task = self._scenes[key] = asyncio.get_running_loop().create_task(
                _play(scene, (self, *args), kwargs), name=scene.__name__
            )
        played = await asyncio.shield(task)
        exchanges = EXCHANGES.get([])
        exchanges.extend(each for each in played.exchanges if each not in exchanges)
        return played

    async def aclose(self) -> None:
        for task in self._scenes.values():
            task.cancel()
        await asyncio.gather(*self._scenes.values(), return_exceptions=True)


Probe = Callable[[Context[T]], Awaitable[None]]


class Probes(Generic[T]):
    """The probes of a module, or of several together, by their names."""

    def __init__(self, *parts: "Probes[T]") -> None:
        self._by_name: dict[str, Probe[T]] = {}
        for part in parts:
            for probe in part:
                self.add(probe)

    def add(self, probe: Probe[T]) -> Probe[T]:
        """As a decorator. Raises ValueError for a name that is taken."""
        name: str = probe.__name__
        if name in self._by_name:
            raise ValueError(f"there are two probes {name}")
        self._by_name[name] = probe
        return probe

    def without(self, *names: str) -> "Probes[T]":
        """The others. Raises KeyError for a name of none."""
        left = Probes(self)
        for name in names:
            del left._by_name[name]
        return left

    def __getitem__(self, name: str) -> Probe[T]:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Probe[T]]:
        return iter(self._by_name.values())

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._by_name)


@dataclass(frozen=True, slots=True)
class Suite(Generic[T]):
    """How agents of one revision are found and tested. Each set's module has one, named SUITE."""

    open: Callable[[Wire, str, Options, bool], Awaitable[Opened[T]]]
    """(wire, url, options, is_told): find out whether, and how, the server speaks the revision. Raises NotSpoken, and
    Unanswered if nobody is there. If the person who asks has said that it does (is_told), it goes on with what there
    is, and the probes will say what is wrong."""
    probes: Probes[T]


@dataclass(frozen=True, slots=True)
class _Played:
    result: Any = None
    error: Exception | None = None
    exchanges: Sequence[Exchange] = ()


async def _play(scene: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> _Played:
    exchanges: list[Exchange] = []
    EXCHANGES.set(exchanges)
    try:
        result = await scene(*args, **kwargs)
    except Exception as error:
        return _Played(error=error, exchanges=exchanges)
    return _Played(result, exchanges=exchanges)


def _copy_error(error: Exception) -> Exception:
    """Raised anew for everybody, because an exception that is raised twice grows a traceback of both."""
    if isinstance(error, Failed):
        return Prerequisite(error.expected, error.got, error.exchange)
    if isinstance(error, Unanswered):
        return Prerequisite(f"an answer: {error}", None, error.exchange)
    if isinstance(error, NotShown):
        return NotShown(error.trigger, error.did)
    if isinstance(error, NotObserved):
        return NotObserved(str(error), error.trigger)
    if isinstance(error, NotApplicable):
        return NotApplicable(str(error))
    return error
