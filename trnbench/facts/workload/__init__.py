"""Workloads: models, layouts, jobs, suites, fleets and studies.

`model.py` has a model's shapes, `weights.py` its tensors, and `layout.py` the table of all parallel
degrees and modes; begin with these three. `hf_config.py` imports Hugging Face configurations.
"""
