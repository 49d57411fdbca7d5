"""Checks by protocol. The folder of each protocol has the detection of its agents, the client that probes use, the
scenes and the probes."""
