"""The observer's own parts: a report costs no more than a call, and trace headers are parsed by their specification."""

import inspect

import pytest

from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver, parse_traceparent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "ids"),
    [
        (f"00-{TRACE}-{SPAN}-01", (TRACE, SPAN)),
        (f" 00-{TRACE}-{SPAN}-00 ", (TRACE, SPAN)),
        (f"01-{TRACE}-{SPAN}-01-more", (TRACE, SPAN)),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        ("", None),
    ],
)
def test_traceparent_is_parsed_by_its_specification(header: str, ids: tuple[str, str] | None):
    assert parse_traceparent(header.encode()) == ids


def test_default_observer_ignores_every_report():
    methods = [name for name, _ in inspect.getmembers(GatewayObserver, inspect.isfunction) if name.startswith("note_")]
    assert len(methods) > 10
    for name in methods:
        method = getattr(NO_OBSERVER, name)
        assert method(*([None] * len(inspect.signature(method).parameters))) is None
    assert not NO_OBSERVER.is_active
