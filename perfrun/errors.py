"""Every error that ends a command, and the exit status it stands for.

    PerfrunError            3  something is wrong with perfrun or the machine under it
    ├── UsageError          2  the command line, a flag's value, or what it names
    ├── WorkspaceError      2  a checkout or a download that cannot be had as asked
    ├── StoreError          2  an index of results that cannot be opened, read or written
    ├── Interrupted       130  Ctrl-C or a termination signal
    ├── EngineError         2  setup.py: no engine that answers (perfrun.image.engine)
    ├── BuildError          1  setup.py: the image could not be built (perfrun.image.build)
    └── LoadError           1  setup.py: a saved image could not be loaded (perfrun.image.saved)

A benchmark that fails is not an error of perfrun's: it is an `Outcome`.
The one place that catches these is `main` of `perfrun.benchmark`, and for setup.py of
`perfrun.image.main`.
"""


class PerfrunError(Exception):
    """Base of all errors that perfrun raises on purpose; the text is what the user reads."""

    exit_code = 3

    @property
    def line(self) -> str:
        """The text as one line: what a name or path in it has of line ends is escaped.

        Blanks of any width stay, as French messages have before a colon; a tab is one.
        """
        from unicodedata import category  # a megabyte of tables, for who has an error to show

        return "".join(
            c
            if c.isprintable() or category(c) == "Zs"
            else c.encode("unicode_escape").decode("ascii")
            for c in str(self).replace("\t", " ")
        )


class UsageError(PerfrunError):
    """What the user asked for cannot be right. One line: what, where, what to do."""

    exit_code = 2


class WorkspaceError(PerfrunError):
    """Code or data that the run needs cannot be put into the workspace as asked."""

    exit_code = 2


class StoreError(PerfrunError):
    """An index of results cannot be opened, read or written; the summaries are untouched."""

    exit_code = 2


class Interrupted(PerfrunError):  # noqa: N818 - it is a state of the run, not a mistake
    """The user, or the system, asked the run to stop."""

    exit_code = 130
