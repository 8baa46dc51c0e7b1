"""Chips, instances, price lists and calibrations as files."""
