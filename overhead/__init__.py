"""Measure perfrun itself: what it costs, and how true its figures are. See docs/performance.md."""
