"""Data files: search, safe reading, strict checks, and frozen records with their provenance.

Enters: folders of TOML files. Leaves: records (chips, instances, models ...) whose every number has
a source and a kind, or a list of faults. The package knows TOML, folders and schemas, but no chips.

    search.py     a name -> its file, the user's before the shipped one
    toml_file.py  a file -> a table
    inherit.py    `like = "NAME"`: the table merged with the table of another file
    structure.py  a table -> a record, with the types of quantity.py and schema.py
    document.py   all of this in one call: begin here
"""
