"""Tokens that the gateway sends to agents' servers: its own tokens, and those that a provider issues for a caller."""
