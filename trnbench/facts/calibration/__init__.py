"""Efficiencies fitted to measurements: of chips, training stacks and collective stacks."""
