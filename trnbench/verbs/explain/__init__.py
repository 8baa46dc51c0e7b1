"""A measured step explained: which assumption fits the difference to its prediction best."""
