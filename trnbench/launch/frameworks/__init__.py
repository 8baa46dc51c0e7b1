"""One module a training framework: its facts, its configuration, and how that is read back."""
