"""Stacks of training and of links fitted to measurements, as files."""
