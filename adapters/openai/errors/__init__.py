"""OpenAI's errors ↔ faults."""
