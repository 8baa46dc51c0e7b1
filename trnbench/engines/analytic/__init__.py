"""The engine of closed forms over arrays. Never imports the other engine."""
