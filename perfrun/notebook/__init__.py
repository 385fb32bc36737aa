"""Results in Python and Jupyter: `perfrun.load`, tables of pandas and polars, `%%perfrun`."""
