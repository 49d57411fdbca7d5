"""Records of a thread → what AIEF callers see."""
