"""Decoding of an upstream server's messages and streams as canonical events."""
