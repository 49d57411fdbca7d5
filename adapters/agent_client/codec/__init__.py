"""Pure conversion between values of the protocol and canonical values."""
