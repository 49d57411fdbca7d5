"""Agents that are Python callables in this process."""
