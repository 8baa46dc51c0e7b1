"""Facts: data files read into frozen records of hardware, prices, calibrations and workloads."""
