"""babelgate.yaml and the environment: the model, and how it is loaded."""
