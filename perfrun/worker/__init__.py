"""The program that runs inside the environment under test: standard library, Python >= 3.8."""
