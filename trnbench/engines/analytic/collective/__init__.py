"""Collective operations in closed form: alpha-beta over message plans, and bounds."""
