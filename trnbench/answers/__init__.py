"""What the verbs answer: typed records with numbers, and the figures that name them."""
