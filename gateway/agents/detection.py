"""Protocol detection: tries every protocol on a server concurrently, and selects the best one that answers.

`UPSTREAMS` is in order of preference: protocols that carry more of a run come first. Detection never starts work. It
requests only cards, lists and pings, by GET requests and searches.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from babelgate.adapters import UPSTREAMS
from babelgate.adapters.kit.card_trust import CardTrust
from babelgate.adapters.kit.client.answers import LISTING_LIMIT, read_answer
from babelgate.adapters.kit.client.calls import Hook
from babelgate.adapters.kit.client.status import UNAVAILABLE
from babelgate.adapters.kit.client.tls import ClientTls, explain_failure, has_dropped_client
from babelgate.adapters.kit.upstream import Upstream
from babelgate.canonical import AgentInfo, Fault, FaultError
from babelgate.gateway.agents.networks import ClientFactory, Networks, open_client
from babelgate.gateway.settings.model import AgentSettings

_REQUEST_TIMEOUT: Final = httpx.Timeout(5.0)
"""Timeout of each phase of a request (connect, write, read), in seconds. Chosen."""
_PROTOCOL_TIMEOUT: Final = 10.0
"""Time limit of all requests with which one protocol is tried, in seconds. Chosen."""
_INSTANCE: Final = re.compile(r"instance=([0-9a-fA-F-]{36})")


@dataclass(frozen=True, slots=True)
class Reach:
    """Networks and certificates with which the gateway connects to the servers of an agent."""

    networks: Networks | None = None
    """Networks in which the servers must be; None if they may be anywhere."""
    tls: ClientTls | None = None
    """CAs to trust for https, and the client certificate to present, from the agent's setting `tls`. None trusts the
    CAs of the system and presents no certificate."""
    make: ClientFactory = httpx.AsyncClient
    """Function that creates the HTTP clients for these connections."""

    @classmethod
    def of(cls, settings: AgentSettings, make: ClientFactory = httpx.AsyncClient) -> "Reach":
        """Return how the gateway connects to the servers of an agent with these settings. `make` creates the HTTP
        clients."""
        files = settings.tls
        if files is None:
            return cls(settings.networks, make=make)
        tls = ClientTls(files.ca, files.cert, files.key, tuple(sorted(files.digests.items())))
        return cls(settings.networks, tls, make)


ANYWHERE: Final = Reach()


@dataclass(frozen=True, slots=True)
class Detected:
    """Result of a detection: the protocol and the agents of a server."""

    upstream: Upstream
    agents: Sequence[tuple[AgentInfo, str]]
    """Agents of the server, each with its URL."""
    summary: str
    """Description of the result in one line, for logs, such as `A2A at https://example.com: weather`."""
    instance: str | None = None
    """Instance id of the server if it is a Babelgate, from its header `Babelgate`; None otherwise."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Reason for which a server listed no agents in one protocol."""

    reason: str
    answers: bool = False
    """True if the server works, but its response was not a list of agents."""
    is_tls: bool = False
    """True if no TLS connection to the server could be opened."""
    is_dropped: bool = False
    """True if the server ended the connection without a response."""

    def __str__(self) -> str:
        return self.reason


class Undetected(Exception):
    """No supported protocol was detected on a server. The message lists the attempts in one line."""

    def __init__(self, reason: str, instance: str | None = None, *, answers: bool = False) -> None:
        """Create the exception.

        `instance` is the id of the Babelgate that the server is, if it is one. `answers` is true if the server works,
        but its response was not a list of agents.
        """
        super().__init__(" ".join(reason.split()))
        self.instance = instance
        self.answers = answers


_Key = tuple[str, str, str | None, Reach, CardTrust | None]
"""Key of a cached detection: URL, headers, protocol, restrictions of the connection, and verification of cards."""


class Detector:
    """Detector of the protocols that servers speak. It caches the result for each server."""

    def __init__(self, upstreams: Sequence[Upstream] = UPSTREAMS, *, bound: float = _PROTOCOL_TIMEOUT) -> None:
        """Create a detector. `bound` is the time limit of all requests of one protocol, in seconds."""
        self._upstreams = [each for each in upstreams if each.has_urls]
        self._bound = bound
        self._clients: dict[Reach, httpx.AsyncClient] = {}
        self._instances: dict[str, str] = {}
        self._detections: dict[_Key, asyncio.Future[Detected]] = {}

    async def __aenter__(self) -> "Detector":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await asyncio.gather(*(client.aclose() for client in self._clients.values()))

    def _http(self, reach: Reach) -> httpx.AsyncClient:
        """Return the HTTP client for servers with these restrictions and certificates.

        It is created on first use, because loading its certificates takes longer than the rest of a startup. Raises
        OSError if the certificate files cannot be used.
        """
        if reach not in self._clients:
            hooks: dict[str, list[Hook]] = {"response": [self._record_instance]}
            self._clients[reach] = open_client(reach.networks, _REQUEST_TIMEOUT, hooks, reach.tls, reach.make)
        return self._clients[reach]

    async def _record_instance(self, response: httpx.Response) -> None:
        match = _INSTANCE.search(response.headers.get("babelgate", ""))
        if match is not None:
            self._instances[_origin(str(response.request.url))] = match[1].lower()

    async def detect(
        self,
        url: str,
        headers: Mapping[str, str],
        protocol: str | None = None,
        reach: Reach = ANYWHERE,
        trust: CardTrust | None = None,
    ) -> Detected:
        """Detect the protocol and the agents of a server.

        `protocol` restricts the detection to one protocol, and `reach` the addresses to which it connects. With
        `trust`, only protocols with signed cards are tried, and the cards are verified. Raises Undetected if the server
        does not respond, or speaks none of the protocols.
        """
        key = (url, repr(sorted(headers.items())), protocol, reach, trust)
        if key not in self._detections:
            self._detections[key] = asyncio.ensure_future(self._detect(url, headers, protocol, reach, trust))
        return await self._detections[key]

    async def _detect(
        self, url: str, headers: Mapping[str, str], protocol: str | None, reach: Reach, trust: CardTrust | None
    ) -> Detected:
        try:
            http = self._http(reach)
        except OSError as error:
            raise Undetected(f"tls: a file cannot be used: {error}") from None
        candidates = [
            each
            for each in self._upstreams
            if (each.protocol == protocol or (protocol is None and each.is_detected))
            and (trust is None or each.discover_signed is not None)
        ]
        answers = await asyncio.gather(
            *(self._ask(candidate, url, headers, http, reach, trust) for candidate in candidates)
        )
        instance = self._instances.get(_origin(url))
        if instance is not None and protocol is None:
            gateway = await self._detect_gateway(url, headers, instance, http, reach, trust)
            if gateway is not None:
                return gateway
        pairs = list(zip(candidates, answers, strict=True))
        matches = [(candidate, answer) for candidate, answer in pairs if not isinstance(answer, _Refusal)]
        if not matches:
            refusals = [answer for answer in answers if isinstance(answer, _Refusal)]
            if (tls := next((each.reason for each in refusals if each.is_tls), None)) is not None:
                raise Undetected(tls)
            has_certificate = reach.tls is not None and reach.tls.cert is not None
            if url.startswith("https://") and not has_certificate and all(each.is_dropped for each in refusals):
                words = "ends each connection: it may need a client certificate, which is set by tls.cert and tls.key"
                raise Undetected(f"tls: {url} {words}")
            attempts = "; ".join(f"{candidate.title}: {answer}" for candidate, answer in pairs)
            if len(candidates) == 1:
                answered = any(isinstance(answer, _Refusal) and answer.answers for answer in answers)
                raise Undetected(f"{url}: {answers[0]}", instance, answers=answered)
            raise Undetected(f"{url}: found no supported agent protocol. Tried {attempts}", instance)
        upstream, infos = matches[0]
        others = [candidate.title for candidate, _ in matches[1:]]
        also = f"; it answers as {' and '.join(others)} too, which carry less" if others else ""
        names = ", ".join(upstream.name_of(info) for info in infos[:5]) + (", …" if len(infos) > 5 else "")
        because = f"{upstream.title} at {url}: {names}{also}"
        return Detected(upstream, [(info, url) for info in infos], because, instance)

    async def _ask(
        self,
        upstream: Upstream,
        url: str,
        headers: Mapping[str, str],
        http: httpx.AsyncClient,
        reach: Reach,
        trust: CardTrust | None,
    ) -> "Sequence[AgentInfo] | _Refusal":
        """Return the agents that a server lists in one protocol, or the reason why it lists none."""
        try:
            async with asyncio.timeout(self._bound):
                if trust is not None and upstream.discover_signed is not None:
                    infos = await upstream.discover_signed(url, http, headers, trust)
                else:
                    infos = await upstream.discover(url, http, headers)
        except FaultError as error:
            if (reason := explain_failure(error, url, reach.tls)) is not None:
                return _Refusal(reason, is_tls=True)
            return _Refusal(error.fault.message, answers=_answers(error.fault), is_dropped=has_dropped_client(error))
        except TimeoutError:
            return _Refusal(f"no answer within {self._bound:g} seconds")
        except UnicodeError:
            return _Refusal("its host is not a valid name")
        return infos or _Refusal("it has no agents", answers=True)

    async def _detect_gateway(
        self,
        url: str,
        headers: Mapping[str, str],
        instance: str,
        http: httpx.AsyncClient,
        reach: Reach,
        trust: CardTrust | None,
    ) -> Detected | None:
        """Return the agents of another Babelgate, or None if the URL is not the root of one.

        The index at the root lists the names of the agents. The URL of each agent in the result is that of A2A: among
        the protocols in which each agent has its own URL, A2A carries the most features.
        """
        best = next((each for each in self._upstreams if "{agent}" in (each.own_path or "")), None)
        try:
            async with http.stream("GET", url, headers={**headers, "Accept-Encoding": "identity"}) as response:
                index: Any = await read_answer(response, LISTING_LIMIT)
            names = [str(name) for name in index["agents"]] if "babelgate" in index else []
        except (httpx.HTTPError, FaultError, KeyError, TypeError):
            return None
        if best is None or best.own_path is None or not names:
            return None
        urls = [url.rstrip("/") + best.own_path.format(agent=name) for name in names]
        answers = await asyncio.gather(*(self._ask(best, each, headers, http, reach, trust) for each in urls))
        agents = [(answer[0], at) for answer, at in zip(answers, urls, strict=True) if not isinstance(answer, _Refusal)]
        if not agents:
            return None
        because = f"another Babelgate at {url}: {best.title} for each of {', '.join(names[:5])}"
        return Detected(best, agents, because, instance)


def _answers(fault: Fault) -> bool:
    """Return True if the fault of a discovery shows that the server works and has accepted the key: status 401 and 500
    do not."""
    return fault.code not in UNAVAILABLE and fault.details.get("status") not in (401, 500)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()
