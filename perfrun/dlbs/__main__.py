"""`python3 -m perfrun.dlbs`, in the place of DLBS' `python pytorch_benchmarks/benchmarks.py`."""

import sys

from perfrun.benchmark import main

raise SystemExit(main(["dlbs", *sys.argv[1:]]))
