"""Loops that measure a model without perfrun: the reference that its figures are held against.

Each file is a program of its own that imports nothing of perfrun. It builds the model as the
library's documentation does, times its steps one by one, reads the peak of resident memory
(VmHWM) right after the last one, and prints one JSON object.
"""
