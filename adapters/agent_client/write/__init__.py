"""Conversion of records to updates of a session."""
