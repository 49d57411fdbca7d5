"""A2A ↔ canonical, a dialect for each spelling."""
