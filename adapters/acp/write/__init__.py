"""Conversion of records to the messages and events that ACP callers receive."""
