"""Data files: found in folders, read safely, checked into frozen records with their provenance.

Knows TOML, folders and schemas in general; knows nothing of chips, instances or models.
"""
