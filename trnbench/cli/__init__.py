"""The `trnbench` command: parses, calls `app`, prints. Computes and formats nothing itself."""
