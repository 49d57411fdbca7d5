"""Events of another AG-UI server as canonical events."""
