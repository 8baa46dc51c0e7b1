"""Store of answers, in one SQLite file of the user's: found, compared and asked again.

    place              the file, its owner, its faults, and the lock beside it
    database           opening: checks, migrations, damaged files put aside
    schema, content    tables and seals; compressed contents with size and digest
    runs, snapshot     runs with their answers; the data files behind them
    studies            cells of studies, kept one by one
    difference         two answers compared: causes of what moved, and regressions
    recovery           damage found, and sound rows brought into a new file

In: a verb's answer and its inputs. Out: `KeptRun`, `KeptAnswer`. Begin with `database.opened`
and `runs.add`.
"""
