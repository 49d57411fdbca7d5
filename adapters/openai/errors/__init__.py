"""Conversion between faults and the errors of OpenAI's APIs."""
