"""Records → the messages that ACP callers receive."""
