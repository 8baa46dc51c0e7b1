"""What others measured, beside what the models say: rows, predictions and error statistics."""
