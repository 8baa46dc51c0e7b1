"""Number formats and structured sparsity: what one stored number is."""
