"""The checks of perfrun that need a GPU, in one command: `make gpu`, docs/contributing/gpu.md."""
