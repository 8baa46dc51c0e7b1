"""A training step played from its program: kernels, collectives and schedule joined into seconds.

In: a scalar `StepProgram`, a platform and a calibration. Out: a `PlayedStep`, seconds and busy
seconds by category. `compute`, `exchanges` and `host` play the operations, `blocks` and `stages`
add them up, `meeting` and `account` share them out. Begin with `play.play_step`.
"""
