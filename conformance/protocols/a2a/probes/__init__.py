"""Probes that A2A 0.3 and 1.0 share, for any binding."""
