"""Encoding of a thread's records as the tasks and steps that AIEF callers receive."""
