"""Recording of the HTTP exchanges (requests and responses) of one run with the server of its agent.

`HttpTransport` records the exchanges of a context whose `RECORDER` is set. While a run is active, its exchanges are
stored unchanged, and secrets are removed whenever they are read. When the run has ended and its exchanges are kept, the
secrets are removed from the stored copy. So a run whose exchanges are dropped costs no redaction.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final

from babelgate.adapters.kit.client.redact import hide_headers, hide_texts, hide_url, is_secret_header, secrets_in

BODY_LIMIT: Final = 256 * 1024
"""Maximum number of stored bytes of one body. Chosen: more than any response in the tests of the protocols."""
_MAX_EXCHANGES: Final = 1000
"""Maximum number of exchanges per run. Chosen: enough for a run that polls its server each second for a quarter of an
hour."""
_MAX_PIECES: Final = 4096
"""Maximum number of stored pieces of one body. Chosen: three times the number of pieces of 200 bytes that `BODY_LIMIT`
admits."""
_PIECE_OVERHEAD: Final = 144
"""Memory that a stored piece takes in addition to its bytes, in bytes: a tuple, a float, and the head of a bytes
object."""
_HEADER_OVERHEAD: Final = 168
"""Memory that a stored header takes in addition to its name and value, in bytes: a tuple, the heads of two strings, and
its place in the list."""
OVERHEAD: Final = 2048
"""Estimated memory that an exchange takes in addition to its URL, headers, error and bodies, in bytes."""

RawHeaders = Sequence[tuple[bytes, bytes]]
PublicHeaders = list[tuple[str, str]]
Pieces = list[tuple[float, bytes]]
"""Stored pieces of a body: for each, the seconds since the request began, and its bytes."""


class RecordedBody:
    """Body of a request or response: its bytes as they were sent, up to the limits, with the time of each piece."""

    __slots__ = ("_size_kept", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: Pieces = []
        self.size = 0
        """Size of the whole body until now, in bytes."""
        self._size_kept = 0

    @property
    def is_cut(self) -> bool:
        """True if the body has more bytes than are stored."""
        return self.size > self._size_kept

    def add(self, seconds: float, piece: bytes) -> int:
        """Store a piece, or its beginning, as far as the limits permit. `seconds` is the time since the request. Return
        the memory that it takes, in bytes; 0 if nothing was stored."""
        size, room = len(piece), BODY_LIMIT - self._size_kept
        self.size += size
        if size > room:
            piece, size = piece[:room], room
        if not size or len(self.pieces) >= _MAX_PIECES:
            return 0
        self.pieces.append((seconds, piece))
        self._size_kept += size
        return size + _PIECE_OVERHEAD


class RecordedExchange:
    """One request, and the response to it. The response may still be arriving."""

    __slots__ = (
        "_began",
        "_error",
        "_headers",
        "_public_headers",
        "_recorder",
        "_response_headers",
        "_url",
        "at",
        "has_ended",
        "method",
        "number",
        "request",
        "response",
        "seconds",
        "status",
    )

    def __init__(self, recorder: "ExchangeRecorder", number: int, method: str, url: str, headers: RawHeaders) -> None:
        self._recorder = recorder
        self._began = monotonic()
        self._url = url
        self._headers = headers
        self._response_headers: RawHeaders = ()
        self._public_headers: tuple[PublicHeaders, PublicHeaders] | None = None
        """Headers of the request and of the response after `redact` has removed the secrets. None before that: then
        each property removes the secrets when it is read."""
        self._error = ""
        self.number = number
        """Position among the exchanges of the run, from 1."""
        self.at = recorder.now()
        """Time of the request, in microseconds since 1970, UTC."""
        self.method = method
        self.request = RecordedBody()
        self.response = RecordedBody()
        self.status: int | None = None
        """HTTP status of the response. None while there is no response."""
        self.seconds = 0.0
        """Time from the request to the last byte of the response that has arrived, in seconds."""
        self.has_ended = False

    @property
    def has_failed(self) -> bool:
        """True if the exchange ended with an exception, or if the status of the response is 400 or higher."""
        return bool(self._error) or (self.status is not None and self.status >= 400)

    @property
    def url(self) -> str:
        """URL of the request, without secrets."""
        return hide_url(self._url) if self._public_headers is None else self._url

    @property
    def headers(self) -> PublicHeaders:
        """Headers of the request, without secrets."""
        return _hide(self._headers) if self._public_headers is None else self._public_headers[0]

    @property
    def response_headers(self) -> PublicHeaders:
        """Headers of the response, without secrets."""
        return _hide(self._response_headers) if self._public_headers is None else self._public_headers[1]

    @property
    def error(self) -> str:
        """Reason why the response is missing or incomplete, without secrets."""
        has_secrets = self._public_headers is None and self._error
        return hide_texts(self._error, self._secrets()) if has_secrets else self._error

    def bodies(self) -> tuple[Pieces, Pieces]:
        """Return the stored pieces of the request's body and of the response's body, without secrets."""
        if self._public_headers is not None:
            return self.request.pieces, self.response.pieces
        secrets = self._secrets()
        return _hide_pieces(self.request.pieces, secrets), _hide_pieces(self.response.pieces, secrets)

    async def send(self, pieces: Any) -> AsyncGenerator[bytes]:
        """Yield the pieces of the request's body unchanged, and store them."""
        async for piece in pieces:
            self.note_sent(piece)
            yield piece

    def note_sent(self, piece: bytes) -> None:
        """Store a piece of the request's body."""
        self._store(self.request, piece)

    def note_head(self, status: int, headers: RawHeaders) -> None:
        """Store the status and the headers of the response."""
        self.seconds = monotonic() - self._began
        self.status = status
        if not self._recorder.is_dropped:
            self._response_headers = headers
            self._recorder.account(_size_of(headers))

    def note_piece(self, piece: bytes) -> None:
        """Store a piece of the response's body."""
        self._store(self.response, piece)

    def note_end(self, error: BaseException | None = None) -> None:
        """Mark the exchange as ended. `error` is the exception that ended it, if any. Nothing is stored afterwards."""
        if self.has_ended:
            return
        self.has_ended = True
        self.seconds = monotonic() - self._began
        if error is not None and not self._recorder.is_dropped:
            self._error = f"{type(error).__name__}: {error}".removesuffix(": ")
            self._recorder.account(len(self._error))
        if self._recorder.is_kept:
            self.redact()

    def redact(self) -> None:
        """Remove the secrets from the stored URL, headers, error and bodies of an exchange that has ended."""
        if self._public_headers is None:
            self._url, self._error = self.url, self.error
            self.request.pieces, self.response.pieces = self.bodies()
            self._public_headers = self.headers, self.response_headers
            self._headers = self._response_headers = ()

    def drop(self) -> None:
        """Release the stored URL, headers, error and bodies. The object itself may live longer, because a stream that
        is still open refers to it."""
        self._url = self._error = ""
        self._headers = self._response_headers = ()
        self._public_headers = None
        self.request.pieces, self.response.pieces = [], []

    def _store(self, body: RecordedBody, piece: bytes) -> None:
        recorder = self._recorder
        if not (self.has_ended or recorder.is_dropped) and (size := body.add(monotonic() - self._began, piece)):
            recorder.account(size)

    def _secrets(self) -> list[str]:
        names = ((name.decode("latin-1"), value) for name, value in self._headers)
        return secrets_in(value.decode("latin-1") for name, value in names if is_secret_header(name))


def _hide(headers: RawHeaders) -> PublicHeaders:
    return hide_headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


def _size_of(headers: RawHeaders) -> int:
    return sum([len(name) + len(value) + _HEADER_OVERHEAD for name, value in headers])


def _hide_pieces(pieces: Pieces, secrets: list[str]) -> Pieces:
    """Return the pieces of a body with `***` in place of the secrets. If a secret crosses the border of two pieces,
    return the whole body as one piece."""
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
    """Recorder of the exchanges of one run."""

    def __init__(self, now: Callable[[], int], account: Callable[["ExchangeRecorder", int], None]) -> None:
        """Create a recorder. `now` returns the time in microseconds since 1970. `account` is called with the recorder
        and the number of bytes whenever something is stored."""
        self.now = now
        self.exchanges: list[RecordedExchange] = []
        self.omitted = 0
        """Number of exchanges that were not stored, because the run already had the maximum."""
        self.size = 0
        """Memory that the exchanges take, in bytes."""
        self.is_dropped = False
        """True if `drop` has released the exchanges. Nothing is stored any longer."""
        self.is_kept = False
        """True if the run has ended, and its exchanges are kept. A later attempt of the run sets it to False."""
        self._account = account

    def begin(self, method: str, url: str, headers: RawHeaders) -> RecordedExchange | None:
        """Add an exchange for a request that is about to be sent, and return it. Return None if the recorder was
        dropped, or has the maximum of exchanges."""
        if self.is_dropped:
            return None
        if len(self.exchanges) >= _MAX_EXCHANGES:
            self.omitted += 1
            return None
        exchange = RecordedExchange(self, len(self.exchanges) + 1, method, url, headers)
        self.exchanges.append(exchange)
        self.account(OVERHEAD + len(url) + _size_of(headers))
        return exchange

    def account(self, size: int) -> None:
        """Add a number of stored bytes to `size`, and report it to the callback."""
        self.size += size
        self._account(self, size)

    def keep(self) -> None:
        """Remove the secrets of the exchanges, because they are kept after the end of the run."""
        self.is_kept = True
        for exchange in self.exchanges:
            if exchange.has_ended:
                exchange.redact()

    def drop(self) -> None:
        """Release all exchanges, including those that are still open, and store nothing afterwards."""
        self.is_dropped = True
        for exchange in self.exchanges:
            exchange.drop()
        self.exchanges = []


RECORDER: Final[ContextVar[ExchangeRecorder | None]] = ContextVar("recorder", default=None)
"""Recorder of the requests that are sent in this context. None if they are not recorded."""
