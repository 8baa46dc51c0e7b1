"""Many jobs and one purchase."""
