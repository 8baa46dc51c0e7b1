"""Chips, instances, fabrics and their reliability, as data."""
