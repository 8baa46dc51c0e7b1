"""Published claims on speed and cost, checked by the model: `claim.py` has the records."""
