"""Records → what ACP callers see."""
