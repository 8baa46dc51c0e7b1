"""Workloads run for real on the machine at hand: rows that calibrate a model and try it."""
