"""Events of an ACP run → canonical events."""
