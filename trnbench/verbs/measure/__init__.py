"""Workloads run on the machine at hand, kept as rows of evidence."""
