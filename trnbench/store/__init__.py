"""Answers that were given, kept in one file of the user's: found, compared and asked again."""
