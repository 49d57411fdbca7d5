"""Settings from babelgate.yaml, environment variables and flags: the model and the loader."""
