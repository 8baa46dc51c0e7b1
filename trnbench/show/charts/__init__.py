"""Figures of answers: one family of records, painted in a terminal, as SVG, and in the TUI."""
