"""`python3 -m perfrun.dlbs`, which replaces DLBS' `python pytorch_benchmarks/benchmarks.py`."""

import sys

from perfrun.benchmark import main

raise SystemExit(main(["dlbs", *sys.argv[1:]]))
