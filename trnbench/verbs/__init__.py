"""Verbs: one folder each, from the question asked to the answer as people read it.

A folder holds `question.py` (the options, each once), `run.py` (the function that answers),
`answer.py` (the record of the answer) and `text.py` (tables, sentences and charts of it).
`asking/` is what a question is; `quotes/` is what compare, plan and fleet share. Facts, engines,
prices and the store enter from the folders below; the command line, the terminal UI and
`import trnbench` call `run`. Begin with `matrix/`, the shortest that is whole.
"""
