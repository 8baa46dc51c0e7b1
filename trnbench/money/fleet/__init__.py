"""Many jobs and one purchase: which machines each gets, from when, and what is bought when."""
