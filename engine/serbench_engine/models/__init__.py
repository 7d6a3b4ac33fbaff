"""Models: the architectures, their configurations and the loading of their weights."""
