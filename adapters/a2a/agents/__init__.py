"""A2A agent cards, ours and those of other servers."""
