"""Parsing of HTTP headers (RFC 9110): media types, content codings, preferences, and headers of several lines."""

from collections.abc import Iterable, Mapping
from typing import Final

_SINGLE: Final = frozenset(
    {b"authorization", b"content-length", b"content-type", b"host", b"origin", b"x-api-key", b"x-forwarded-host"}
)
"""Names of headers that may have one value only. If there were two, a proxy might read the first and the gateway the
last."""


def combine_lines(lines: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the value of each header, by its name in lower case. Several lines of one name are joined with commas,
    those of `Cookie` with semicolons (RFC 9110, section 5.3)."""
    combined: dict[bytes, bytes] = {}
    for name, value in lines:
        name, value = name.lower(), value.strip()
        if name in combined:
            value = combined[name] + (b"; " if name == b"cookie" else b", ") + value
        combined[name] = value
    return combined


def find_repeated(lines: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the name of a single-valued header that has two different values. Return None if there is no such
    header."""
    values: dict[bytes, bytes] = {}
    for name, value in lines:
        if name in _SINGLE and values.setdefault(name, value) != value:
            return name.decode("ascii")
    return None


def read_line(headers: Iterable[tuple[bytes, bytes]], name: str) -> str:
    """Return the value of the header `name`; several lines are joined with commas. Return an empty string if it is
    absent."""
    return ", ".join(value.decode("latin-1").strip() for key, value in headers if key.lower() == name.encode())


def media_type_of(value: str) -> str:
    """Return the media type of a `Content-Type`, in lower case and without parameters (section 8.3.1)."""
    return value.partition(";")[0].strip().lower()


def is_accepted(accept: str, media_type: str) -> bool:
    """Return True if an `Accept` header accepts a media type (section 12.5.1). An empty header accepts every type."""
    return _weigh(accept, media_type)[0] > 0


def is_preferred(accept: str, media_type: str, other: str) -> bool:
    """Return True if an `Accept` header prefers `media_type` to `other`, the default type. At equal weights, this
    requires that the header names `media_type` in full: a wildcard that covers both types selects the default."""
    weight, named = _weigh(accept, media_type)
    other_weight, _ = _weigh(accept, other)
    return bool(accept.strip()) and weight > 0 and (weight > other_weight or (weight == other_weight and named))


def content_codings(value: str) -> list[str]:
    """Return the codings of a `Content-Encoding` in the order of their application (section 8.4.1), in lower case and
    without `identity`."""
    codings = (coding.strip().lower() for coding in value.split(","))
    return [coding for coding in codings if coding not in ("", "identity")]


def preferences(value: str) -> Mapping[str, str]:
    """Return the preferences of a `Prefer` header by name, in lower case. If a name is repeated, its first value counts
    (RFC 7240, section 2)."""
    settings: dict[str, str] = {}
    for each in value.split(","):
        name, _, setting = each.partition(";")[0].partition("=")
        if name.strip():
            settings.setdefault(name.strip().lower(), setting.strip().strip('"').lower())
    return settings


def _weigh(accept: str, media_type: str) -> tuple[float, bool]:
    """Return the weight that an `Accept` header gives to a media type, and whether it names the type in full. The
    weight is that of the most specific range that covers the type."""
    if not accept.strip():
        return 1.0, False
    kind = media_type.partition("/")[0]
    ranges = {media_type: 2, f"{kind}/*": 1, "*/*": 0}
    best, weight = -1, 0.0
    for each in accept.split(","):
        name, *parameters = (part.strip().lower() for part in each.split(";"))
        rank = ranges.get(name, -1)
        if rank > best:
            best, weight = rank, _read_weight(parameters)
    return weight, best == 2


def _read_weight(parameters: Iterable[str]) -> float:
    """Return the weight in the parameters of a media range: `q`, between 0 and 1. The default is 1; an invalid number
    counts as 0."""
    for each in parameters:
        name, _, value = each.partition("=")
        if name.strip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0
