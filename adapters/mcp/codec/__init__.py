"""Conversion of values between the protocol and the canonical model."""
