"""Conversion of what another A2A server sends into canonical events."""
