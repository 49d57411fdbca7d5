"""A2A agent cards: those of the gateway, and those of other servers."""
