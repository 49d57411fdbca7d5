"""Tests of the host names that the gateway accepts, and of those of foreign pages, which it rejects."""

from typing import Any

import pytest

from babelgate.gateway.http.host import Hosts
from babelgate.gateway.settings.model import Settings

LOCAL = "192.0.2.7"
"""Address of this machine that the client connected to."""

ACCEPTED = (
    "",
    "localhost",
    "localhost:8000",
    "LOCALHOST",
    "localhost.",
    "app.localhost:3000",
    "127.0.0.1",
    "127.0.0.1:8000",
    "127.1.2.3",
    "[::1]",
    "[::1]:8000",
    "[::ffff:127.0.0.1]",
    "192.0.2.7",
    "192.0.2.7:8000",
)
STRANGE = (
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "evillocalhost",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "localhost#evil.example",
    "localhost, evil.example",
    "localhost evil.example",
    "[::1].evil.example",
    "::1.evil.example",
    "192.0.2.8",
    "0.0.0.0",
    "0x7f.1",
    "localhost" + "a" * 100_000,
    ":8000",
    ".",
    "*",
)


def hosts(**settings: Any) -> Hosts:
    return Hosts.of(Settings.model_validate(settings))


@pytest.mark.parametrize("host", ACCEPTED)
def test_loopback_names_are_accepted(host: str) -> None:
    assert hosts().is_permitted(host, LOCAL)


@pytest.mark.parametrize("host", STRANGE)
def test_other_names_are_refused(host: str) -> None:
    assert not hosts().is_permitted(host, LOCAL)


def test_the_address_of_the_connection_is_accepted() -> None:
    """Accept the address of the socket, which load balancers probe. No host name can look like an address."""
    assert hosts().is_permitted("[2001:db8::7]:8000", "2001:db8::7")
    assert hosts().is_permitted("10.0.0.4:8000", "::ffff:10.0.0.4")
    assert not hosts().is_permitted("10.0.0.4:8000", None)


@pytest.mark.parametrize(
    ("settings", "answered", "refused"),
    [
        ({"public_url": "https://Agents.example.com:8443/gate"}, "agents.example.com", "example.com"),
        ({"hosts": ["a.example", "B.Example."]}, "b.example:8000", "c.example"),
        ({"hosts": ["*.example.com"]}, "a.b.example.com", "example.com.evil.example"),
        ({"hosts": ["*.example.com"]}, "a.example.com", "example.com"),
        ({"hosts": ["[2001:db8::9]"]}, "[2001:db8::9]:80", "[2001:db8::8]:80"),
        ({"hosts": "a.example, b.example"}, "b.example", "c.example"),
        ({"host": "gateway.lan"}, "gateway.lan:8000", "evil.lan"),
    ],
)
def test_configured_hosts_are_accepted(settings: dict[str, Any], answered: str, refused: str) -> None:
    names = hosts(**settings)
    assert names.is_permitted(answered, LOCAL)
    assert names.is_permitted("localhost", LOCAL)
    assert not names.is_permitted(refused, LOCAL)


def test_any_host_is_accepted_with_keys_unless_hosts_are_configured() -> None:
    keys = {"alice": "alice-0123456789"}
    assert hosts(keys=keys).is_permitted("evil.example", LOCAL)
    assert hosts(keys=keys, public_url="https://a.example").is_permitted("evil.example", LOCAL)
    assert not hosts(keys=keys, hosts=["a.example"]).is_permitted("evil.example", LOCAL)
    assert hosts(hosts=["*"]).is_permitted("evil.example", LOCAL)
    assert hosts(hosts=["*"]).is_permitted("no host at all", LOCAL)
