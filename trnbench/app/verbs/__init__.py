"""The eleven verbs: module X holds the function X, what it is asked and how it answers."""
