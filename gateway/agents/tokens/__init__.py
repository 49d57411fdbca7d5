"""Tokens that the gateway shows to agents' servers: its own, and those that a provider issues for a caller."""
