"""Suites of other tools as benchmark classes, unmodified: `perfrun.adapters.TOOL.THEIR_MODULE`.

They run inside the environment under test: standard library only, Python >= 3.8. They are no part
of `benchmarks/`, because suites often have a package of that name, and theirs must win.
"""
