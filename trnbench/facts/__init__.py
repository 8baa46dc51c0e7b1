"""Facts: records of hardware, workloads, calibrations and prices, read from data files.

The lowest layer. TOML files and typed texts enter; frozen records with units and provenance leave.
Nothing here predicts a time. Begin with `units.py` and `records.py`, then:

    catalog/      data files -> checked records      hardware/     chips, instances, fabrics
    workload/     models, layouts, suites, fleets    calibration/  efficiencies, training stacks
    prices/       rates and purchase rules           numbers/      number formats, sparsity
    processes/    child processes and signals
"""
