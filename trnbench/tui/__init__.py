"""The terminal UI: shows answers of `trnbench.verbs` and asks for more; computes nothing itself."""
