"""Collectives on instances and clusters, over message sizes."""
