"""`search_layouts`: every layout of a model on clusters of an instance type; of Python alone."""
