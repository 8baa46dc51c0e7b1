"""The prediction of a training step: set-up, memory, time with its interval, utilization."""
