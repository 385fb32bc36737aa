"""Measure perfrun itself: its cost, and how true its figures are (docs/research/performance.md)."""
