"""The files that start a layout, with what was predicted of it."""
