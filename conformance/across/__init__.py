"""Differential testing across protocols (`babelgate check --across`): does the same run mean the same in each?

Scenarios are played through each protocol that a server speaks, and the results are compared.
"""
