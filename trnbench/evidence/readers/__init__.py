"""Readers of foreign files: training logs, MLPerf logs, nccl-tests output, monitors, profiles.

Each takes a file and returns readings; `steps.py` turns those into one row of a measured step.
"""
