"""Explanations of a step time that differs from the prediction: causes, effects, scores.

`causes.py` loads the known causes, `effects.py` prices each on a step, and `score.py` ranks them by
their likelihood: begin with `explanation.py`, which calls the three.
"""
