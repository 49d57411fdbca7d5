"""Conversion between A2A and canonical types, with a dialect for each spelling of A2A."""
