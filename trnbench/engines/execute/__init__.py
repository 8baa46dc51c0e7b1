"""Executes a training step with real numbers on emulated ranks, as a check of programs.

In: a scalar `StepProgram`, a seed, number formats. Out: losses, weights, bytes sent and held, FLOP;
counts must equal the program's. All ranks of a stage are the first axis of every array
(`ranks.py`); `numbers/` rounds to narrow formats and sums as the PSUM does. Begin with
`trainer.py`; `stage.py` holds the blocks of a stage, `instance.py` one block, `operations.py` and
`kernels.py` the arithmetic, `exchange.py` and `traffic.py` the communication.
"""
