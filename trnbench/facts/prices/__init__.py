"""Dated prices and the rules of purchase, as published."""
