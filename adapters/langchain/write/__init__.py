"""Encoding of records for callers: frames of streams, message chunks, content blocks, webhooks."""
