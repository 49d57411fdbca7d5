"""Probes, the scenes that they share, and the context in which they run.

A probe is an async function with one argument, the context, that tests one requirement. It returns if the requirement
is met, and otherwise raises an exception of `babelgate.conformance.verdict`:

    @probes.add
    async def task_has_an_id(ctx: Context[Target]) -> None:
        sent = await ctx.once(plain_send)
        check(isinstance(dig(sent.task, "id"), str), "the task has an id", sent.task)

A scene is an async function that makes the requests which several probes examine. `ctx.once` calls it once per check
and gives each probe the same result, so that a hundred requirements do not need a hundred messages.
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
class ProbeOptions:
    """Settings of the user for judging an agent."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers to send with every request to the judged server, such as API keys."""
    credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """Authorization headers for URLs that contain a user and password, by origin."""
    other_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of a second caller, who must not see the tasks of the first. Empty if the user names no second caller."""
    triggers: Triggers = field(default_factory=Triggers)
    timeout: float = 10.0
    """Timeout for one answer, or for the next event of a stream, in seconds."""
    concurrency: int = 12
    """Maximum number of probes that run concurrently."""
    callback_host: str = "127.0.0.1"
    """Address at which the agent can reach this machine, for push notifications."""


class NotSpoken(Exception):
    """Error for a server that does not speak the judged protocol version; the message gives the evidence."""


class NotDetectable(NotSpoken):
    """Error for a protocol without a request that shows whether a server speaks it. The server was not asked. The
    message names the option by which the user can request the protocol."""


@dataclass(frozen=True, slots=True)
class Opened(Generic[T]):
    """Agent at a URL, after it has been detected that the agent speaks a protocol version."""

    target: T
    """Object through which the probes of this protocol version call the agent, which they read as `ctx.target`. Each
    protocol has its own class for it: a client with one method per operation, such as `AiefTarget`, or for A2A the
    agent card with a client for each of its interfaces (`A2aTarget`)."""
    endpoint: str
    because: str
    """Evidence that the agent speaks the protocol version, for the report."""
    capabilities: frozenset[str] = frozenset()
    untestable: Mapping[str, str] = field(default_factory=dict[str, str])
    """Capabilities of the agent that this installation cannot test, each with the reason. Their requirements are not
    shown."""


class Context(Generic[T]):
    def __init__(self, wire: Wire, opened: Opened[T], options: ProbeOptions) -> None:
        self.wire = wire
        self.target = opened.target
        self.capabilities = opened.capabilities
        self.untestable = opened.untestable
        self.options = options
        self.triggers = options.triggers
        self._scenes: dict[Any, asyncio.Task[_Played]] = {}

    async def once(
        self, scene: Callable[Concatenate["Context[T]", P], Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return the result of a scene. The scene runs only for the first probe that needs it with these arguments.

        If the scene failed, raises a copy of its error. Failed and Unanswered are raised as Prerequisite, because
        another requirement covers them.
        """
        played = await self._play_scene(scene, args, kwargs)
        if played.error is not None:
            raise _copy_error(played.error)
        return played.result

    async def subject(
        self, scene: Callable[Concatenate["Context[T]", P], Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return the result of a scene like `once`, for the one probe that tests the scene itself.

        Failed and Unanswered are raised as Failed, because they are the failure of this probe.
        """
        played = await self._play_scene(scene, args, kwargs)
        match played.error:
            case None:
                return played.result
            case Failed() as error if type(error) is Failed:
                raise Failed(error.expected, error.actual, error.exchange)
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
    """Collection of probes by name, from one or several modules."""

    def __init__(self, *parts: "Probes[T]") -> None:
        self._by_name: dict[str, Probe[T]] = {}
        for part in parts:
            for probe in part:
                self.add(probe)

    def add(self, probe: Probe[T]) -> Probe[T]:
        """Add a probe; usable as a decorator. Raises ValueError if there is a probe of that name."""
        name: str = probe.__name__
        if name in self._by_name:
            raise ValueError(f"there are two probes {name}")
        self._by_name[name] = probe
        return probe

    def without(self, *names: str) -> "Probes[T]":
        """Return a copy without the probes of these names. Raises KeyError if there is no probe of a name."""
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
class ProbeSuite(Generic[T]):
    """Detection and probes for agents of one protocol version. The module of each requirement set has one, named
    SUITE."""

    open: Callable[[Wire, str, ProbeOptions, bool], Awaitable[Opened[T]]]
    """Function that detects whether and how a server speaks the protocol version. Its arguments are the wire, the URL,
    the options and `is_requested`.

    Raises NotSpoken, or Unanswered if no server answers. If `is_requested` is true, the user named this protocol
    version. Then the function does not raise NotSpoken, and the probes report what is wrong. The exception is a server
    that this installation cannot test.
    """
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
    """Return a copy of a scene's error to raise in one probe. Failed and Unanswered become Prerequisite.

    A copy is needed because an exception that is raised in two probes would collect both tracebacks.
    """
    if isinstance(error, Failed):
        return Prerequisite(error.expected, error.actual, error.exchange)
    if isinstance(error, Unanswered):
        return Prerequisite(f"an answer: {error}", None, error.exchange)
    if isinstance(error, NotShown):
        return NotShown(error.trigger, error.did)
    if isinstance(error, NotObserved):
        return NotObserved(str(error), error.trigger)
    if isinstance(error, NotApplicable):
        return NotApplicable(str(error))
    return error
