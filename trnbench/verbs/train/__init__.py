"""`train`: one step, or a whole run, of models on clusters, modelled or with real numbers."""
