"""One module a kind of scheduler: its facts, and the files that it reads."""
