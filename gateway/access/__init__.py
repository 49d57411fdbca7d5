"""Access control: what callers may do, checked at the hub's port."""
