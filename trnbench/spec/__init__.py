"""Hardware and prices as frozen records, one TOML file each. Knows no workload and no model."""
