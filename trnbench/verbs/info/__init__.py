"""Installed packages, folders of data, and models that run with each stack."""
