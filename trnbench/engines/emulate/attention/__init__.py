"""Fused attention kernels as instruction streams on one NeuronCore, forward and backward.

In: sizes of a call and instruction costs. Out: seconds and busy shares. `forward.py` and
`backward.py` write the streams, `instructions.py` single instructions. Begin with `run.py`.
"""
