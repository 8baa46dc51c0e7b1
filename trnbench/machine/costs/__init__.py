"""Costs of single hardware steps, for both engines; `tiling` and `message_plan` list the steps.

The closed form (`analytic`) and the played one (`emulate`) differ in how steps overlap, so the cost
of one step is written once. No other package reads these.
"""
