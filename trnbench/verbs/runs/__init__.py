"""What was asked before, with its answers."""
