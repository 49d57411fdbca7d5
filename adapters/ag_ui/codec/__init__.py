"""Conversion of values between AG-UI and the canonical model, in both directions."""
