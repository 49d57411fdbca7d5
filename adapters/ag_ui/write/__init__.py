"""Records as events of AG-UI."""
