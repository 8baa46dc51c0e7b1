"""Prices: what was paid for a machine when, and rates read anew."""
