"""Values of AG-UI and of the canonical model."""
