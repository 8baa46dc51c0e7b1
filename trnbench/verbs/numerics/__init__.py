"""A small model trained in several number formats, side by side."""
