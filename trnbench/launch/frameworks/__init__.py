"""Training frameworks, one in each module: facts, configuration, and reader of a configuration."""
