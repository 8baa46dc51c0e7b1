"""What a step computes, moves and stores; no hardware. May not import `spec`."""
