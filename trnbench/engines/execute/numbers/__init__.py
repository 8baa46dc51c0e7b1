"""Number formats, rounding, block scaling, sparsity and the product in emulated arithmetic.

Imports nothing of the package but `errors` and `units`. `numerics.formats` is light: it loads
neither numpy nor ml_dtypes, so specs and workloads may name formats freely.
"""
