"""A training run on several instance types: days, USD, and why."""
