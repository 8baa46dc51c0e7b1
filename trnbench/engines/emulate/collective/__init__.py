"""Collective operations played: messages over the real links, sharing them fairly."""
