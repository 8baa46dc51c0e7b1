"""The views of the application, one screen each."""
