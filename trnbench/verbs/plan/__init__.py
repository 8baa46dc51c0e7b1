"""Which machines run a training, how many, bought how."""
