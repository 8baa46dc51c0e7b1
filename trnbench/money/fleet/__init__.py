"""Plan of a fleet: many jobs and one purchase; machines and start of each job, and what is bought.

`problem` states it in days and nodes, `greedy` finds a first plan, `programme` the best plan by
mixed-integer programming, `relax` the limits that prevent or raise the cost of a plan.
"""
