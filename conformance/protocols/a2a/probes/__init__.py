"""Probes that test what A2A 0.3 and 1.0 both require, through any binding."""
