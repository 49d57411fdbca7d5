"""The contract that every Agent passes, whatever is behind it: `await check_agent(make)` plays with fresh agents and
raises `Broken`, with the rule that was broken, at the first thing that no hub can live with.

`Dialogue` is the same play for one's own tests: one task, from its input over questions and answers to its end.
"""

from babelgate.conformance.contract.dialogue import Dialogue
from babelgate.conformance.contract.referee import Broken, Transcript
from babelgate.conformance.contract.trial import check_agent

__all__ = ("Broken", "Dialogue", "Transcript", "check_agent")
