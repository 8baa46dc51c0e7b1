"""Files that other tools write, as typed evidence: logs of steps, collectives, device monitors."""
