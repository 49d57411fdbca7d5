"""Checks by protocol. Each protocol has a folder with the detection of its agents, the scenes and the probes."""
