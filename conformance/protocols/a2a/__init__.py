"""A2A (Agent2Agent): `v1` judges 1.0, `v0` judges 0.2.5 to 0.3."""
