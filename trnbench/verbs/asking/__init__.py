"""Questions: what every verb is asked, from the command line, Python, files and the terminal UI.

`option` declares one option as a field of a `Question` record; `question` reads texts and files
into such a record and writes it back; `function` makes the Python function of a verb from it.
`knobs`, `run_parts` and `given_run` hold the options that several verbs share. `use_case` has the
hooks of those who wait for an answer. Begin with `question`.
"""
