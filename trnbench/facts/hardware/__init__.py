"""Hardware as vendors describe it: chips, compute units, fabrics, instances, failure rates.

`library.py` loads a `Platform`, an instance with its chip, by name: begin there.
"""
