"""Records of a thread → the tasks and steps that AIEF callers receive."""
