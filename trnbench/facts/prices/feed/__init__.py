"""Rates from AWS services and price files, as additions to the user's price lists.

A file or an answer enters; `RatesRead` (reading.py) leaves, and `ledger.py` turns the rates into
rows of a price list. `files.py` recognises the kind of a file: begin there.
"""
