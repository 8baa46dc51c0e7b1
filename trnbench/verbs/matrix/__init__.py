"""Matrix products on chips, in time and in numbers."""
