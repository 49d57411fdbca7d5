"""Types of the values in babelgate.yaml, such as sizes, periods, URLs and names, and the base class of its sections."""

import json
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_settings import NoDecode

from babelgate.canonical.agent import AGENT_NAME

_UNITS: Final = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""Pattern of a token by RFC 9110, 5.6.2, such as the name of a header."""
_HOST_NAME: Final = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]+")
_PERIODS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PERIOD: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Z]*)")


def parse_size(value: object) -> object:
    """Convert a size such as `64MB` to bytes. A value that is no text is returned unchanged. Raises ValueError for any
    other text.

    KB, MB, GB and TB are powers of 1024, as are KiB, MiB, GiB and TiB."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip().upper().replace("IB", "B"))
    if match is None or match[2] not in _UNITS:
        raise ValueError("a size is a number of bytes, or a number with a unit, such as 64MB")
    return int(float(match[1]) * _UNITS[match[2]])


def parse_period(value: object) -> object:
    """Convert a period such as `30d` to seconds. A number is returned unchanged. Raises ValueError for any other
    text."""
    if not isinstance(value, (str, bool)):
        return value
    match = _PERIOD.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("a period is a number of seconds, or a number with a unit (s, m, h, d, w), such as 30d")
    return float(match[1]) * _PERIODS[match[2]]


_PERIOD_TEXT: Final = r"^\s*\d+(\.\d+)?\s*[smhdwSMHDW]?\s*$"
"""Pattern of a period as text for the JSON schema, which has no flag for ignoring case."""


def _period_schema(**number: float) -> WithJsonSchema:
    """Return the JSON schema of a period: a number with the limits in `number`, such as `minimum=0`, or a text."""
    return WithJsonSchema({"anyOf": [{"type": "number", **number}, {"type": "string", "pattern": _PERIOD_TEXT}]})


Period = Annotated[
    float, BeforeValidator(parse_period), Field(gt=0, allow_inf_nan=False), _period_schema(exclusiveMinimum=0)
]
"""Type of a setting that is a positive duration: a number of seconds, or a text such as `30d`, which is converted to
seconds."""
Window = Annotated[float, BeforeValidator(parse_period), Field(ge=0, le=1), _period_schema(minimum=0, maximum=1)]
Leeway = Annotated[float, BeforeValidator(parse_period), Field(ge=0, le=600), _period_schema(minimum=0, maximum=600)]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(gt=0),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([KMGT]i?B|B)?$"}]}
    ),
]


def parse_list(value: object) -> object:
    """Convert a list that an environment variable has as text: JSON, or words separated by commas. Raises ValueError
    for a text that begins like JSON and is not.

    A value that is no text is returned unchanged."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('a list is JSON, such as ["a", "b"], or words with commas between') from None
    return [word.strip() for word in value.split(",") if word.strip()]


def _network(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return ip_network(value, strict=False)
    except ValueError:
        raise ValueError("an address or a network, such as 10.0.0.0/8 or ::1") from None


IPNetwork = Annotated[
    IPv4Network | IPv6Network, BeforeValidator(_network), WithJsonSchema({"type": "string", "examples": ["10.0.0.0/8"]})
]
Networks = Annotated[tuple[IPNetwork, ...], NoDecode, BeforeValidator(parse_list)]


def check_http_url(value: str) -> str:
    """Return a URL without its trailing slash.

    Raises ValueError unless it is an http or https URL without user, password, query and fragment."""
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise ValueError("an http:// or https:// URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an http:// or https:// URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL without a user and password; credentials go into headers")
    if parts.query or parts.fragment:
        raise ValueError("a URL without ? and #")
    return value.rstrip("/")


def _agent_url(value: str) -> str:
    """Check a URL like `check_http_url`, but keep its trailing slash.

    A path that ends with a slash differs from the path without it (RFC 3986, section 6.2.3). Raises ValueError for a
    text that is no such URL."""
    plain = check_http_url(value)
    return f"{plain}/" if value.endswith("/") and urlsplit(plain).path else plain


AgentUrl = Annotated[str, AfterValidator(_agent_url), Field(json_schema_extra={"format": "uri"})]
HttpUrl = Annotated[str, AfterValidator(check_http_url), Field(json_schema_extra={"format": "uri"})]


def _origin(value: str) -> str:
    if value == "*":
        return value
    parts = urlsplit(check_http_url(value))
    if parts.path:
        raise ValueError("an origin is scheme, host and port: https://app.example.com")
    return f"{parts.scheme}://{parts.netloc}".lower()


Origin = Annotated[str, AfterValidator(_origin)]


def _host_name(value: str) -> str:
    """Return a host name or address in lower case, without brackets and a trailing dot. Raises ValueError if it has a
    port."""
    name = value.strip().lower().removeprefix("[").removesuffix("]").removesuffix(".")
    if not _HOST_NAME.fullmatch(name):
        raise ValueError("a host is a name or an address without a port: agents.example.com, *.example.com, or *")
    return name


HostName = Annotated[str, AfterValidator(_host_name)]


def _listen(value: str) -> str:
    """Return an address with a port, such as `127.0.0.1:9464`, unchanged. IPv6 addresses need brackets. Raises
    ValueError for any other text."""
    host, _, port = value.rpartition(":")
    is_address = host.startswith("[") and host.endswith("]") if ":" in host else bool(host)
    if not is_address or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("an address and a port, such as 127.0.0.1:9464 or [::1]:9464")
    return value


Listen = Annotated[
    str,
    AfterValidator(_listen),
    WithJsonSchema({"type": "string", "pattern": r"^.+:\d+$", "examples": ["127.0.0.1:9464"]}),
]


def split_listen(value: str) -> tuple[str, int]:
    """Return the address, without brackets, and the port of a value such as `[::1]:9464`."""
    host, _, port = value.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _agent_name(value: str) -> str:
    if not AGENT_NAME.fullmatch(value):
        raise ValueError(
            "an agent's name is 1 to 63 of a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends"
        )
    return value


AgentName = Annotated[str, AfterValidator(_agent_name)]


def _owner(value: str) -> str:
    if not value or len(value) > 128 or not value.isprintable():
        raise ValueError("an owner's name is 1 to 128 printable characters")
    return value


Owner = Annotated[str, AfterValidator(_owner)]


class SettingsSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)


Strings = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], NoDecode, BeforeValidator(parse_list)]
