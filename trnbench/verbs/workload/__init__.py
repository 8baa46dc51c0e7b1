"""Models and benchmark suites as files."""
