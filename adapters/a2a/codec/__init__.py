"""Conversion between A2A and canonical types. There is one dialect for each form in which A2A writes JSON."""
