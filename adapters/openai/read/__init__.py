"""What a model answers → canonical events."""
