"""Conversion of values between MCP and the canonical model."""
