"""Quotes: a whole run on a cluster, its days, bill and risks, as compare, plan and fleet need it.

`question` is the run that is asked for; `markets` the prices and offers it may buy at; `run`
prices a step on each cluster and adds losses and bills; `searching` looks for the cheapest size;
`draws` samples what is uncertain once for all rows. `answer` is one quote, `text`, `charts`,
`notes` and `verdict` say it to people. Begin with `answer`.
"""
