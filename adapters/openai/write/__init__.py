"""Records of a task → what callers of OpenAI's API see."""
