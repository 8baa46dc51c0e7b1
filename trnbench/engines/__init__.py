"""Engines that read one program: analytic prices it, emulate plays it, execute computes it."""
