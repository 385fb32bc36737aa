"""Methods that end their process; just before, each writes the time to the file `died_at`."""

import os
import signal
import sys
import time
from pathlib import Path

from perfrun import Benchmark


class Deaths(Benchmark):
    """One method for each way in which a process dies."""

    def sigkill(self) -> None:
        """Die as by the kernel when memory is short, or by `kill -9`."""
        self._note_time()
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()

    def segfault(self) -> None:
        """Die as by a broken extension module."""
        self._note_time()
        os.kill(os.getpid(), signal.SIGSEGV)
        signal.pause()

    def hard_exit(self) -> None:
        """End without running any handler."""
        self._note_time()
        os._exit(0)

    def sys_exit(self) -> None:
        """End as a script does."""
        self._note_time()
        sys.exit(0)

    def _note_time(self) -> None:
        (Path(self.output_dir) / "died_at").write_text(str(time.time_ns()), encoding="ascii")
