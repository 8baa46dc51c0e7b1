"""Child processes: started safely, ended with their parent, and workers that answer calls."""
