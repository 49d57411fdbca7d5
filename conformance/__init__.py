"""Judges of agents. They share no code with what they judge: only `contract`, which judges an Agent in the process
itself, knows the canonical model."""

from babelgate._renamed import refuse_former_name

refuse_former_name(__name__)
