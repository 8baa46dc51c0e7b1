"""Tables, charts and pages of answers, for any verb."""
