"""Collective algorithms as message plans over ranks: who sends what to whom in which round."""
