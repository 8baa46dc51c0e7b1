"""Rates read from files and services of others, and how they join the user's own price lists."""
