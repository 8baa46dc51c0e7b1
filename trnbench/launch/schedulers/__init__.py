"""Schedulers, one kind in each module: their facts, and the files that they read."""
