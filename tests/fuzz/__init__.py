"""Fuzzing of every parser that reads what a stranger wrote."""
