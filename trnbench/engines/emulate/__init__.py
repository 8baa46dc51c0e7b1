"""Emulators: kernels, collectives and steps played event by event, as a check of closed forms.

`tensor_engine/`: a matrix kernel, instruction by instruction; `attention/`: fused attention as an
instruction stream; `collective/`: messages that share links; `schedule/`: a pipeline schedule slot
by slot; `step/`: a training step from all of these. In: the same program, platform and calibration
as `engines/analytic`. Out: seconds, busy seconds and event traces of one scalar layout. Begin with
`step/play.py`.
"""
