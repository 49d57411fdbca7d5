"""Values of the protocol and of the canonical model, both ways."""
