"""The program of a training step: operations, messages and memory of each rank; no hardware.

    model + layout -> Grid -> blocks of operations -> stages -> StepProgram -> engines, memory

In: a `Model` and a `Layout` (`facts.workload`), where each degree is a number or an array. Out: a
`StepProgram`, whose arrays span all layouts at once. Seconds and machines come later (`engines`).

Begin with `step` (`training_step`), then `tensor` and `ops` (the vocabulary), `layer` and `builder`
(forward pass), `backward` and `keeping` (backward pass and recompute), `optimizer` (ZeRO), `stages`
and `schedule` (pipeline). `legality` refuses layouts that do not divide. `job_passes`, `job_phases`
and `generation` are for DPO, PPO and GRPO. May not import `spec`.
"""
