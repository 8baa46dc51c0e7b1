"""A pipeline schedule played on one representative rank of each stage."""
