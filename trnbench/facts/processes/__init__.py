"""Child processes, pools of workers, and requests to end."""
