"""Widgets, one idea each; none of them knows what is asked or how it is computed."""
