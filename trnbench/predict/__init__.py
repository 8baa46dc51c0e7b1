"""Prediction of a training step: time with its interval, memory, chance to fit, utilization.

In: a catalogue and names or records (model, instance, nodes, layout). Out: `Prediction`.

    setup         model, platform and calibrations, read by name once (`TrainSetup`)
    step          a settled layout: valid or not, memory, closed form, played step
    fit           memory with its interval, and the chance that it fits
    ranges        the uncertain numbers of a calibration; sampling and common_draws draw from them
    played        the same step by the emulator
    search/       all layouts of a question

Begin with `step.predict`; for a search with `search.search`. Neither names a front end or a report.
"""
