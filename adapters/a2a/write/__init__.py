"""Records of a task → what A2A callers see."""
