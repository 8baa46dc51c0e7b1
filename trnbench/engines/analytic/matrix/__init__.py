"""Seconds of matrix products in closed form, over arrays of shapes, one module per compute unit.

In: a `MatrixProduct` (m, k, n, batch, formats; arrays broadcast) and a `Chip`. Out: `MatrixTime`:
seconds, their parts, bytes at memory, and reasons where a chip cannot. Begin with
`time.matrix_time`; `neuron_core.py` (with `parts.py`) prices a tiled kernel on a NeuronCore,
`gpu.py` tiles and waves, `systolic.py` the cycles of a bare array under conventions.
"""
