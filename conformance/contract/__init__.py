"""Contract that every `Agent` must meet, as tests of an agent in the same process.

`await check_agent(make)` tests new agents and raises `Broken`, naming the rule, at the first violation that a hub
cannot handle. `Dialogue` runs one task with an agent for your own tests: from its input through questions and answers
to its end.
"""

from babelgate.conformance.contract.dialogue import Dialogue
from babelgate.conformance.contract.referee import Broken, Transcript
from babelgate.conformance.contract.trial import check_agent

__all__ = ("Broken", "Dialogue", "Transcript", "check_agent")
