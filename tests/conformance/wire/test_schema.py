"""Validation of the formats that a schema names."""

import pytest

from babelgate.conformance.wire.schema import Schemas

SCHEMAS = Schemas({"$defs": {"Run": {"properties": {"at": {"type": ["string", "null"], "format": "date-time"}}}}})


@pytest.mark.parametrize(
    ("at", "is_time"),
    [
        ("2026-11-28T10:00:00Z", True),
        ("2026-11-28t10:00:00.123456z", True),
        ("2026-11-28T10:00:00+01:00", True),
        (None, True),
        ("2026-11-28T10:00:00", False),
        ("2026-11-28T10:00:00.5", False),
        ("2026-11-28", False),
        ("2026-13-28T10:00:00Z", False),
        ("yesterday", False),
    ],
)
def test_time_requires_a_zone(at: str | None, is_time: bool) -> None:
    violations, _ = SCHEMAS.holds("Run", {"at": at})
    assert (violations == ()) is is_time
