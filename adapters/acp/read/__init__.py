"""Conversion of the events of a run on another ACP server to canonical events."""
