"""Records → what callers see: frames of streams, chunks, content blocks, webhooks."""
