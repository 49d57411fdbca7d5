"""Pure conversions between the Messages API and the canonical model."""
