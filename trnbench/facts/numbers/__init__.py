"""Number formats and sparsity patterns: names, bits, ranges."""
