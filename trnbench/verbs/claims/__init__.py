"""Claims of vendors, tried on specs, price lists and the model."""
