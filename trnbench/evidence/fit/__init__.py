"""Fits of chips, software and collectives to measured rows."""
