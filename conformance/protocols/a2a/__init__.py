"""Checks of A2A (Agent2Agent): `v1` judges agents by 1.0, `v0` by 0.2.5 to 0.3."""
