"""The terminal UI: shows answers of `trnbench.app` and asks for more; computes nothing itself."""
