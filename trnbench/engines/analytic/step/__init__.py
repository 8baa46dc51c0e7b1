"""A training step in closed form: compute, exchanges, pipeline, ending, memory."""
