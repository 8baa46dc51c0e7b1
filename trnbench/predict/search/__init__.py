"""All layouts of a question: which are legal, which fit, which are fastest."""
