"""What each process is made ready with in which tests run. The one that hands them out to others needs none of it, and
they wait for it to begin with.
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
    # How long an example takes tells of the machine, not of the code.
    hypothesis.settings.register_profile(
        "any machine", max_examples=USUAL, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    any_machine = hypothesis.settings.get_profile("any machine")
    hypothesis.settings.register_profile("few", parent=any_machine, max_examples=FEW)
    hypothesis.settings.load_profile("few" if few_examples else "any machine")
    if few_examples:
        # Hypothesis looks for constants in the source of every module, for a second, and shows them one time in twenty.
        _PROVIDERS._get_local_constants = lambda: _PROVIDERS._local_constants
    quicken_registration()
    keep_compiled()
    close_connections()
    # asyncio takes Ctrl-C over while a loop runs where Python's own handler has it, and asks each time which has: an
    # answer that it makes of the text of the task. pytest-asyncio runs the loop eight times a test.
    signal.signal(signal.SIGINT, lambda number, frame: signal.default_int_handler(number, frame))
