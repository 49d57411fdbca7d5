"""Tests of the comparison of settings for a reload."""

import pytest

from babelgate.gateway.settings.changes import NEEDS_RESTART, compute_digest, find_changes, is_fixed, without_restart
from babelgate.gateway.settings.model import Settings

ECHO = {"python": "babelgate.gateway.demo:echo"}


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({}, {}, []),
        ({}, {"limits": {"run": 5, "queue": {"agent": 1}}}, ["limits.run", "limits.queue.agent"]),
        ({"agents": {"a": ECHO}}, {"agents": {"b": ECHO}}, ["agents.a", "agents.b"]),
        ({"agents": {"a": ECHO, "b": ECHO}}, {"agents": {"b": ECHO, "a": ECHO}}, ["agents"]),
        ({"agents": {"a": ECHO}}, {"agents": {"a": {**ECHO, "concurrency": 2}}}, ["agents.a"]),
        ({"keys": {"alice": "one"}}, {"keys": {"alice": "two"}}, ["keys"]),
        ({"cors": ["http://a.example"]}, {"port": 9000}, ["port", "cors"]),
        ({}, {"telemetry": {"metrics": {"listen": "127.0.0.1:0"}}}, ["telemetry.metrics.listen"]),
    ],
)
def test_changed_settings_are_named(before: dict[str, object], after: dict[str, object], changes: list[str]) -> None:
    found = find_changes(Settings.model_validate(before), Settings.model_validate(after))
    assert [*found] == changes


def test_each_setting_of_the_start_is_fixed() -> None:
    assert set(Settings.model_fields) >= {key.partition(".")[0] for key in NEEDS_RESTART}
    for name in ("host", "port", "database", "pooler", "durability", "standby", "cluster", "workers", "node", "blobs"):
        assert is_fixed(name)
    for name in ("artifacts", "shutdown.grace", "log_format", "telemetry.metrics.listen", "watch"):
        assert is_fixed(name)
    assert is_fixed("admin.listen") and not is_fixed("admin.agents")


def test_settings_of_the_start_stay_until_a_restart() -> None:
    before = Settings.model_validate({"port": 8001, "telemetry": {"metrics": {"listen": "127.0.0.1:0"}}})
    changes = {"public_url": "https://agents.example", "admin": {"listen": "127.0.0.1:0", "agents": True}}
    after = Settings.model_validate({"port": 9000, **changes})
    applied = without_restart(before, after)
    assert (applied.admin.listen, applied.admin.agents) == (None, True)
    assert (applied.port, applied.telemetry, applied.public_url) == (8001, before.telemetry, "https://agents.example")
    assert [key for key in ("port", "telemetry.metrics.listen", "limits.run") if is_fixed(key)] == [
        "port",
        "telemetry.metrics.listen",
    ]


def test_the_digest_depends_on_every_shared_setting() -> None:
    base: dict[str, object] = {"agents": {"a": ECHO, "b": ECHO}, "keys": {"alice": "one"}}
    digest = compute_digest(Settings.model_validate(base))
    assert len(digest) == 12
    for same in ({"port": 9000}, {"host": "127.0.0.2"}, {"node": "n1"}, {"admin": {"listen": "127.0.0.2:1"}}):
        assert compute_digest(Settings.model_validate({**base, **same})) == digest
    others: list[dict[str, object]] = [
        {"keys": {"alice": "two"}},
        {"agents": {"b": ECHO, "a": ECHO}},
        {"agents": {"a": {**ECHO, "concurrency": 2}, "b": ECHO}},
        {"limits": {"run": 5}},
        {"network": {"allow": ["10.0.0.0/8"]}},
    ]
    assert len({compute_digest(Settings.model_validate({**base, **other})) for other in others} | {digest}) == 6
