"""What trnbench answers: a folder a verb, with its question, run, answer and text."""
