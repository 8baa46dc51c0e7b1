"""Kept answers, with their questions."""
