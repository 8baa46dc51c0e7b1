"""Evidence: measured steps, kernels and collectives against predictions.

Files of measurements enter; comparisons, calibrations, explanations and verdicts leave. Begin with
`rows.py` (the columns of a file) and `predict.py` (the prediction of a row), then:

    readers/   foreign logs and profiles -> rows       measure/   rows measured on this machine
    fit/       rows -> calibration files               explain/   causes of an unexpected step time
    claims/    published claims -> verdicts            statistics.py, ranking.py   scores
"""
