"""Fixtures of the tests of several gateways."""

from tests.cluster.nodes import cluster as cluster
