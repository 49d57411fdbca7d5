"""Conformance checks for agents and their servers.

They share no code with what they check, except `babelgate.usage`, by which the benchmark and the gateway count tokens.
Only `contract`, which checks an `Agent` in the same process, uses the canonical model.
"""

from babelgate._renamed import refuse_former_name

refuse_former_name(__name__)
