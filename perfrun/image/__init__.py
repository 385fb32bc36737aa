"""setup.py: build or load an image from a bare host. Standard library only, Python 3.8 or newer."""
