"""Machines for a training, their number and purchase."""
