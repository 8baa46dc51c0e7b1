"""The engine that plays work tile by tile and message by message. Never imports the other."""
