"""Preparation of each process that runs tests.

The process that distributes tests to the others does not need it: the others wait for its start, so it skips these slow
imports.
"""

import signal
from typing import Any, Final

import hypothesis
from hypothesis.internal.conjecture import providers

from tests.closing import close_connections
from tests.compiled import keep_compiled
from tests.examples import FEW, USUAL
from tests.registration import quicken_registration

_PROVIDERS: Final[Any] = providers


def make_ready(few_examples: bool) -> None:
    # The time of an example depends on the machine, not on the code.
    hypothesis.settings.register_profile(
        "any machine", max_examples=USUAL, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    any_machine = hypothesis.settings.get_profile("any machine")
    hypothesis.settings.register_profile("few", parent=any_machine, max_examples=FEW)
    hypothesis.settings.load_profile("few" if few_examples else "any machine")
    if few_examples:
        # Hypothesis searches the source of every module for constants, for a second, and uses them one time in twenty.
        _PROVIDERS._get_local_constants = lambda: _PROVIDERS._local_constants
    quicken_registration()
    keep_compiled()
    close_connections()
    # asyncio handles Ctrl-C while a loop runs if Python's own handler has it, and checks that each time by formatting
    # the task. pytest-asyncio runs the loop eight times a test.
    signal.signal(signal.SIGINT, lambda number, frame: signal.default_int_handler(number, frame))
