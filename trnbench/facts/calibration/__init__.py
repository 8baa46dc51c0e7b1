"""Calibrations: fitted numbers that turn a program's work into time and memory.

Chip efficiencies, training stacks and communication stacks, each from one file, and their transfer
to unmeasured hardware. Begin with `training_stack.py`.
"""
