"""Prices and purchase rules: rates per instance-hour, their dates, terms, blocks and limits.

`price.py` has dated price lists, `purchase.py` a provider's rules, `owned.py` the hourly cost of an
owned machine. `feed/` reads rates from AWS and from files.
"""
