"""Records of a thread → the messages that AIEF callers receive."""
