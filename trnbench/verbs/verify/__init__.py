"""A launched job against its prediction: its time within the interval, or not."""
