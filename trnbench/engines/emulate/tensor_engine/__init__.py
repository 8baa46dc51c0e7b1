"""One NeuronCore played instruction by instruction while a matrix kernel runs.

In: a `KernelSchedule` and instruction costs. Out: seconds, busy shares, stalls and a trace.
`plan.py` lists the instructions, `machine.py` plays them, `steady.py` skips repetitions exactly;
`stream.py` and `replay.py` do the same for free instruction streams. Begin with
`matrix.run_matrix`.
"""
