"""A training step played from its program and its places alone: nothing in closed form."""
