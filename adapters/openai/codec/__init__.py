"""Conversion between the types of OpenAI's APIs and the canonical model."""
