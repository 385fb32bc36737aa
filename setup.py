#!/usr/bin/env python3
"""Build the container image: `python3 setup.py --framework=torch`. Needs Docker and nothing else.

This is PerfZero's script of the same name, not setuptools': perfrun itself is installed with pip.
"""

import sys

if sys.version_info < (3, 8):
    sys.exit("perfrun: setup.py needs Python 3.8 or newer, and this is %s" % sys.version.split()[0])

# With -I or -P, Python does not put the script's own folder on the path.
sys.path.insert(0, __file__.rpartition("/")[0] or ".")
# With sudo, it would leave files of root in the checkout.
sys.dont_write_bytecode = True

from perfrun.image.command import main  # noqa: E402 - needs the path above

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
