"""Records → what callers receive: frames of streams, message chunks, content blocks, webhooks."""
