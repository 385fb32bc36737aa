"""`python checkout.py ROOT WORKSPACE URL HASH`: check out once, print seconds as JSON.

perfrun is imported from ROOT before the clock starts, because its start is measured elsewhere. What
the checkout imports later counts.
"""

import json
import sys
import time
from pathlib import Path


def main(root: str, workspace: str, url: str, git_hash: str) -> None:
    """Do what a run does before its first trial, and nothing else."""
    sys.path.insert(0, root)
    from perfrun.options.plan import parse_repos
    from perfrun.workspace.checkouts import checked_out

    repos = parse_repos(f"{url};HEAD;{git_hash}")
    begin = time.perf_counter()
    with checked_out(repos, workspace=Path(workspace), use_cached=False) as checkouts:
        seconds = time.perf_counter() - begin
    (checkout,) = checkouts
    found = {"seconds": seconds, "hash": checkout.git_hash, "fetched": checkout.fetched}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
