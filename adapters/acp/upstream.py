"""Calls of an ACP server, its refusals in its own words, and what it answers as values that can be trusted."""
