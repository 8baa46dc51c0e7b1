"""Measured steps and kernels against predictions: errors, coverage, and what is behind them."""
