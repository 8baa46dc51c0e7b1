"""A program on a machine: links and paths, ranks and groups, message plans, kernel schedules.

In: an `Instance` and a `Platform` (`facts.hardware`), groups of ranks or a `Grid` (`program`). Out:
plans without seconds, which both engines read: `Placed` collectives, `KernelSchedule`s of products,
visits of attention; `costs` alone has prices, of single instructions and transfers.

Begin with `fabric` (links), `fabric_routes` (paths) and `placement` (ranks on chips). `rank_groups`
places a layout's axes on ranks; `message_plan` turns a collective among them into messages.
`tiling` cuts matrix products and attention up for a core. Refusals are in `legality`,
`layout_rules` and `tiling.legality`.
"""
