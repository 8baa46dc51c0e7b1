"""How work lies on a machine: tiling, fabric, placement, legality, message plans."""
