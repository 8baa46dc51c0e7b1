"""Widgets, an idea each; none of them knows the question or the way to its answer."""
