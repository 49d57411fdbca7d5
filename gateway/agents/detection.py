"""Protocol detection: every protocol is tried on a server at once, and the best that answers is taken.

The order of `UPSTREAMS` is the order of preference: what carries more of a run comes first. Nothing is tried that could
start work: cards, lists and pings are asked for, by GET and by searches.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from babelgate.adapters import UPSTREAMS
from babelgate.adapters.kit.client.answers import LISTING_LIMIT, read_answer
from babelgate.adapters.kit.client.status import UNAVAILABLE
from babelgate.adapters.kit.upstream import Upstream
from babelgate.canonical import AgentInfo, Fault, FaultError

_PATIENCE: Final = httpx.Timeout(5.0)
_BOUND: Final = 10.0
"""Seconds for all that one protocol asks."""
_INSTANCE: Final = re.compile(r"instance=([0-9a-fA-F-]{36})")


@dataclass(frozen=True, slots=True)
class Detected:
    upstream: Upstream
    agents: Sequence[tuple[AgentInfo, str]]
    """Each with the URL to call it at."""
    because: str
    """What was found, in one line."""
    instance: str | None = None
    """Of the gateway that the server is, if it is one of ours."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a server listed no agents."""

    reason: str
    answers: bool = False
    """The server is well: it answered, and not with a list of agents."""

    def __str__(self) -> str:
        return self.reason


class Undetected(Exception):
    """Nothing that is known answers. One line, with all that was tried."""

    def __init__(self, reason: str, instance: str | None = None, *, answers: bool = False) -> None:
        """`answers` = the server is well: it answered, and not with a list of agents."""
        super().__init__(" ".join(reason.split()))
        self.instance = instance
        self.answers = answers


class Detector:
    """Asks servers; one server once."""

    def __init__(self, upstreams: Sequence[Upstream] = UPSTREAMS, *, bound: float = _BOUND) -> None:
        """`bound` = seconds for all that one protocol asks."""
        self._upstreams = upstreams
        self._bound = bound
        self._made: httpx.AsyncClient | None = None
        self._instances: dict[str, str] = {}
        self._asked: dict[tuple[str, str, str | None], asyncio.Future[Detected]] = {}

    async def __aenter__(self) -> "Detector":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._made is not None:
            await self._made.aclose()

    @property
    def _http(self) -> httpx.AsyncClient:
        """Made when there is somebody to ask: its certificates take longer to load than the rest of a start."""
        if self._made is None:
            self._made = httpx.AsyncClient(event_hooks={"response": [self._record_instance]}, timeout=_PATIENCE)
        return self._made

    async def _record_instance(self, response: httpx.Response) -> None:
        match = _INSTANCE.search(response.headers.get("babelgate", ""))
        if match is not None:
            self._instances[_origin(str(response.request.url))] = match[1].lower()

    async def detect(self, url: str, headers: Mapping[str, str], protocol: str | None = None) -> Detected:
        """Raises Undetected. With `protocol` nothing else is tried."""
        key = (url, repr(sorted(headers.items())), protocol)
        if key not in self._asked:
            self._asked[key] = asyncio.ensure_future(self._detect(url, headers, protocol))
        return await self._asked[key]

    async def _detect(self, url: str, headers: Mapping[str, str], protocol: str | None) -> Detected:
        tried = [each for each in self._upstreams if protocol in (None, each.protocol)]
        answers = await asyncio.gather(*(self._ask(each, url, headers) for each in tried))
        instance = self._instances.get(_origin(url))
        if instance is not None and protocol is None and (ours := await self._ours(url, headers, instance)) is not None:
            return ours
        found = [
            (each, answer) for each, answer in zip(tried, answers, strict=True) if not isinstance(answer, _Refusal)
        ]
        if not found:
            said = "; ".join(f"{each.title}: {answer}" for each, answer in zip(tried, answers, strict=True))
            if len(tried) == 1:
                answered = any(isinstance(each, _Refusal) and each.answers for each in answers)
                raise Undetected(f"{url}: {answers[0]}", instance, answers=answered)
            raise Undetected(f"{url}: no agent protocol is spoken there that is known. Tried {said}", instance)
        upstream, infos = found[0]
        others = [each.title for each, _ in found[1:]]
        also = f"; it answers as {' and '.join(others)} too, which carry less" if others else ""
        names = ", ".join(upstream.name_of(info) for info in infos[:5]) + (", …" if len(infos) > 5 else "")
        because = f"{upstream.title} at {url}: {names}{also}"
        return Detected(upstream, [(info, url) for info in infos], because, instance)

    async def _ask(self, upstream: Upstream, url: str, headers: Mapping[str, str]) -> "Sequence[AgentInfo] | _Refusal":
        """The agents, or why there are none."""
        try:
            async with asyncio.timeout(self._bound):
                infos = await upstream.discover(url, self._http, headers)
        except FaultError as error:
            return _Refusal(error.fault.message, answers=_answers(error.fault))
        except TimeoutError:
            return _Refusal(f"no answer within {self._bound:g} seconds")
        except UnicodeError:
            return _Refusal("its host is not a name")
        return infos or _Refusal("it has no agents", answers=True)

    async def _ours(self, url: str, headers: Mapping[str, str], instance: str) -> Detected | None:
        """Another gateway of this kind, by its table of URLs: each of its agents has a server of its own there, in the
        best protocol that gives it one (A2A).
        None where the URL is that of one of its protocols."""
        mine = next((each for each in self._upstreams if "{agent}" in (each.own_path or "")), None)
        try:
            async with self._http.stream("GET", url, headers={**headers, "Accept-Encoding": "identity"}) as response:
                index: Any = await read_answer(response, LISTING_LIMIT)
            names = [str(name) for name in index["agents"]] if "babelgate" in index else []
        except (httpx.HTTPError, FaultError, KeyError, TypeError):
            return None
        if mine is None or mine.own_path is None or not names:
            return None
        urls = [url.rstrip("/") + mine.own_path.format(agent=name) for name in names]
        answers = await asyncio.gather(*(self._ask(mine, each, headers) for each in urls))
        agents = [(answer[0], at) for answer, at in zip(answers, urls, strict=True) if not isinstance(answer, _Refusal)]
        if not agents:
            return None
        because = f"another Babelgate at {url}: {mine.title} for each of {', '.join(names[:5])}"
        return Detected(mine, agents, because, instance)


def _answers(fault: Fault) -> bool:
    """Whether a server that is well refused, and not because of the key."""
    return fault.code not in UNAVAILABLE and fault.details.get("status") not in (401, 500)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()
