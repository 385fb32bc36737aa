"""`python -m perfrun`."""

from perfrun.benchmark import main

if __name__ == "__main__":
    raise SystemExit(main())
