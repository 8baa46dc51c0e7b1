"""One verb in every combination of some options, resumable, on many workers."""
