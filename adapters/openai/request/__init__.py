"""A conversation → the bodies of requests."""
