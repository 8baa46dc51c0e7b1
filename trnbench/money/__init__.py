"""Decisions ahead of a run: which layouts there are, which is best, what it costs."""
