"""Recording of the HTTP exchanges of one run with the server of its agent.

`HttpTransport` records the exchanges of a context whose `RECORDER` is set. Secrets are removed before they are stored.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final

from babelgate.adapters.kit.client.redact import hide_headers, hide_texts, hide_url, is_secret_header, secrets_in

BODY_LIMIT: Final = 256 * 1024
"""Maximum number of stored bytes of one body. Chosen: more than any answer in the tests of the protocols."""
_MAX_EXCHANGES: Final = 1000
"""Maximum number of exchanges per run. Chosen: a run that polls its server each second for a quarter of an hour."""
_MAX_PIECES: Final = 4096
"""Maximum number of stored pieces of one body. Chosen: three times as many as tokens of 200 bytes fill it with."""
_PIECE_OVERHEAD: Final = 144
"""Size of a piece without its bytes: a tuple, a float, and the head of a bytes object."""
OVERHEAD: Final = 2048
"""Estimated size of an exchange without its bodies, in bytes."""


class RecordedBody:
    """Body of a request or response: its first bytes as they passed, with the time of each piece."""

    __slots__ = ("_size_kept", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        """Seconds since the request, and bytes."""
        self.size = 0
        """Size of the whole body until now, in bytes."""
        self._size_kept = 0

    @property
    def is_cut(self) -> bool:
        """True if the body was larger than what is stored."""
        return self.size > self._size_kept

    def add(self, seconds: float, piece: bytes) -> int:
        """Store a piece as far as the limits permit, and return the size that it takes in memory, in bytes."""
        self.size += len(piece)
        stored = piece[: BODY_LIMIT - self._size_kept] if len(self.pieces) < _MAX_PIECES else b""
        if not stored:
            return 0
        self.pieces.append((seconds, stored))
        self._size_kept += len(stored)
        return len(stored) + _PIECE_OVERHEAD


class RecordedExchange:
    """One request, and the response to it. The response may still be arriving."""

    __slots__ = (
        "_began",
        "_recorder",
        "_secrets",
        "at",
        "error",
        "has_ended",
        "headers",
        "method",
        "number",
        "request",
        "response",
        "response_headers",
        "seconds",
        "status",
        "url",
    )

    def __init__(
        self, recorder: "ExchangeRecorder", number: int, method: str, url: str, headers: Iterable[tuple[str, str]]
    ) -> None:
        sent = list(headers)
        self._recorder = recorder
        self._secrets = secrets_in(value for name, value in sent if is_secret_header(name))
        self._began = monotonic()
        self.number = number
        """Position among the exchanges of the run, from 1."""
        self.at = recorder.now()
        """Time of the request, in microseconds since 1970, UTC."""
        self.method = method
        self.url = hide_url(url)
        self.headers = hide_headers(sent)
        self.request = RecordedBody()
        self.response = RecordedBody()
        self.status: int | None = None
        """Status of the response. None until it arrives, or if none does."""
        self.response_headers: list[tuple[str, str]] = []
        self.error = ""
        """Reason why the response is missing or incomplete."""
        self.seconds = 0.0
        """Time until the last byte of the response."""
        self.has_ended = False

    @property
    def has_failed(self) -> bool:
        """True if the response is missing, incomplete or an error."""
        return bool(self.error) or (self.status is not None and self.status >= 400)

    async def send(self, pieces: Any) -> AsyncGenerator[bytes]:
        """Yield the pieces of the request's body, and store them."""
        async for piece in pieces:
            self._store(self.request, piece)
            yield piece

    def note_head(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Store the head of the response."""
        self.seconds = monotonic() - self._began
        self.status = status
        self.response_headers = hide_headers(headers)

    def note_piece(self, piece: bytes) -> None:
        """Store a piece of the response's body."""
        self._store(self.response, piece)

    def note_end(self, error: BaseException | None = None) -> None:
        """End the exchange. Nothing is stored afterwards, and the secrets of the request are forgotten."""
        if self.has_ended:
            return
        self.has_ended = True
        self.seconds = monotonic() - self._began
        if error is not None:
            self.error = hide_texts(f"{type(error).__name__}: {error}".removesuffix(": "), self._secrets)
        for body in (self.request, self.response):
            body.pieces = _hide_pieces(body.pieces, self._secrets)
        self._secrets = []

    def bodies(self) -> tuple[list[tuple[float, bytes]], list[tuple[float, bytes]]]:
        """Return the pieces of the request and of the response, without secrets."""
        return _hide_pieces(self.request.pieces, self._secrets), _hide_pieces(self.response.pieces, self._secrets)

    def _store(self, body: RecordedBody, piece: bytes) -> None:
        if not (self.has_ended or self._recorder.is_dropped):
            self._recorder.account(body.add(monotonic() - self._began, piece))


def _hide_pieces(pieces: list[tuple[float, bytes]], secrets: list[str]) -> list[tuple[float, bytes]]:
    """Return the pieces without secrets. A secret may be in two pieces, and then both become one."""
    if not secrets:
        return pieces
    whole = b"".join(piece for _, piece in pieces)
    if not any(secret.encode() in whole for secret in secrets):
        return pieces
    separate = [(seconds, hide_texts(piece.decode("utf-8", "surrogateescape"), secrets)) for seconds, piece in pieces]
    joined = hide_texts(whole.decode("utf-8", "surrogateescape"), secrets)
    if "".join(text for _, text in separate) != joined:
        separate = [(pieces[-1][0], joined)]
    return [(seconds, text.encode("utf-8", "surrogateescape")) for seconds, text in separate]


class ExchangeRecorder:
    """Exchanges of one run."""

    def __init__(self, now: Callable[[], int], account: Callable[["ExchangeRecorder", int], None]) -> None:
        """Create a recorder. `now` returns the time in microseconds; `account` is called with each stored size."""
        self.now = now
        self.exchanges: list[RecordedExchange] = []
        self.omitted = 0
        """Number of exchanges beyond the maximum, which are not stored."""
        self.size = 0
        """Stored bytes."""
        self.is_dropped = False
        """True if the exchanges were removed from memory. Nothing more is stored."""
        self._account = account

    def begin(self, method: str, url: str, headers: Iterable[tuple[str, str]]) -> RecordedExchange | None:
        """Return a new exchange, or None if it is not stored."""
        if self.is_dropped:
            return None
        if len(self.exchanges) >= _MAX_EXCHANGES:
            self.omitted += 1
            return None
        exchange = RecordedExchange(self, len(self.exchanges) + 1, method, url, headers)
        self.exchanges.append(exchange)
        self.account(OVERHEAD)
        return exchange

    def account(self, size: int) -> None:
        """Count stored bytes."""
        self.size += size
        self._account(self, size)

    def drop(self) -> None:
        """Remove all exchanges."""
        self.is_dropped = True
        self.exchanges = []


RECORDER: Final[ContextVar[ExchangeRecorder | None]] = ContextVar("recorder", default=None)
"""Recorder of the requests in this context."""
