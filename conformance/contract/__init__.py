"""Contract that every `Agent` must meet.

`await check_agent(make)` plays with new agents and raises `Broken`, naming the rule, at the first violation that a hub
cannot handle. `Dialogue` is the same play for your own tests: one task, from its input through questions and answers to
its end.
"""

from babelgate.conformance.contract.dialogue import Dialogue
from babelgate.conformance.contract.referee import Broken, Transcript
from babelgate.conformance.contract.trial import check_agent

__all__ = ("Broken", "Dialogue", "Transcript", "check_agent")
