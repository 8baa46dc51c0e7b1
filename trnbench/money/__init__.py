"""From tokens to money: wall time with failures, bills by purchase option, and the best purchase.

    price_terms -> purchase     offers: one tariff per purchase option, or why there is none
    failures -> goodput         wall time of a run: work, checkpoints, lost work, restarts
    billing, capacity_blocks    wall time and machines -> what is billed (drawing in `billing`)
    cost                        the chain: tokens -> seconds -> wall time -> bill, with intervals
    market, objective           clusters that run a model; which way to buy is best
    draws, spot_play            the same in common random draws, and spot machines played
    sensitivity                 what would change the plan
    fleet/                      many jobs and one purchase

In: tokens a second of each cluster, price lists, reliability data. Out: `TrainingCost`, `Bill`.
Begin with `cost.training_cost`.
"""

from __future__ import annotations

from typing import Literal

Commitment = Literal["whole", "share"]
"""How a term that outlasts a run is charged: whole, or only by the run's share of it, the rest
being of use to others."""
CompileCache = Literal["kept", "filled", "lost"]
"""Graphs compiled for a chip: read again by each restart, by the first start too, or by none."""
Objective = Literal["cost", "time", "pareto"]
"""What decides between plans."""
