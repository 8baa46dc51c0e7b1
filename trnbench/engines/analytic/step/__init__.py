"""A training step in closed form: compute, exchanges, pipeline, ending, memory.

In: a `StepProgram` over a grid of layouts, a `Platform`, a `TrainingEfficiency`, and `Exchanges`.
Out: `StepTime` (seconds by category) and `StepMemory` (bytes by category), arrays over layouts.
Order of the calculation: `compute` and `exchanges` price single operations, `blocks` adds them up
per block, `stages` per pipeline stage, `pipeline` and `ending` over the step, `time` assembles.
`memory*` does the same for bytes; `job_time` joins the phases of a job. `engines` and `kept_forms`
keep closed forms of collectives between questions and processes. Begin with
`time.step_prices` and `StepPrices.time`.
"""
