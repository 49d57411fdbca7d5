"""Differential testing across protocols (`babelgate check --across`): does the same run mean the same? Scenarios are
played through each protocol that a server speaks, and what they meant is compared."""
