"""What OpenAI's APIs say ↔ canonical."""
