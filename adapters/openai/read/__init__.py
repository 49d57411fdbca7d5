"""Readers that convert answers of models to canonical events."""
