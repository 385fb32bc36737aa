"""The program of the worker: `python entry.py ORDER`, in the interpreter under test.

In a container, `python -I entry.py --supervise ORDER` starts the worker as a process of its own.
ORDER is a JSON file that says what to do; `perfrun.launchers` and `perfrun.run` write it.
"""

import json
import os
import sys


def _adopt_perfrun() -> None:
    """Make `import perfrun` work without putting the folder that perfrun lies in on the path.

    That folder may be the harness's own site-packages, whose libraries the benchmark must not see.
    It runs at import, so that children of multiprocessing's `spawn` have it, too.
    """
    worker = os.path.dirname(os.path.abspath(__file__))
    package = os.path.dirname(worker)
    if sys.path and os.path.abspath(sys.path[0]) == worker:
        del sys.path[0]
    if "perfrun" in sys.modules:
        return
    # The folder is on the path for this one import, which imports nothing else.
    sys.path.insert(0, os.path.dirname(package))
    try:
        import perfrun  # noqa: F401
    finally:
        del sys.path[0]


_adopt_perfrun()


def main() -> int:
    """Carry out the order and return the exit status."""
    if sys.argv[1] == "--supervise":
        from perfrun.worker.supervise import Supervisor

        return Supervisor(sys.argv[2]).run()
    with open(sys.argv[1], encoding="utf-8") as file:
        order = json.load(file)
    # Checkouts come before installed packages, so that the code checked out is what is measured.
    sys.path[0:0] = order.get("first_paths", [])
    sys.path.extend(order.get("last_paths", []))
    sys.argv = [sys.argv[0]]
    from perfrun.worker.bytecode import tell_edits_apart

    tell_edits_apart()
    if order["action"] != "describe":  # a description ends at once
        from perfrun.worker.procfs import die_with_parent

        die_with_parent()
    # No parent is named in a container, whose processes all end with its first one. The check comes
    # after `die_with_parent`, because the parent may have ended before that.
    if order.get("parent_pid") not in (None, os.getppid()):
        from perfrun.worker.lifeline import end_with_harness

        why_not = end_with_harness(order.get("lifeline"))
        if why_not:
            sys.stderr.write("perfrun: the worker does not start: %s\n" % why_not)
            return 1
    if order["action"] == "run":
        from perfrun.worker.method import run_trial

        return run_trial(order)
    if order["action"] == "describe":
        from perfrun.worker.describe import describe_environment

        return describe_environment(order)
    from perfrun.worker.services import SERVICES

    return SERVICES[order["action"]](order)


if __name__ == "__main__":
    sys.exit(main())
