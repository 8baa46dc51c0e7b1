"""Benchmark and capacity planning for training on AWS Trainium, from the terminal."""

__version__ = "0.1.0"
