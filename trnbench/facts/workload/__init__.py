"""What is trained and how it is laid out: models, weights, layouts, suites. Knows no hardware."""
