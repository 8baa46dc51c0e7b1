"""What vendors claim, tried on specs, price lists and the model."""
