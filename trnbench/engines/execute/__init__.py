"""The training step executed with real numbers on emulated ranks. May not import `analytic`."""
