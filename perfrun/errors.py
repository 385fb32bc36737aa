"""All errors that end a command, and their exit statuses.

    PerfrunError            3  something is wrong with perfrun or the machine under it
    ├── UsageError          2  the command line, a flag's value, or what it names
    │   └── FlagsRefused       a flag that a benchmark does not know (perfrun.run.environment)
    ├── WorkspaceError      2  a checkout or a download that cannot be made as asked
    ├── StoreError          2  an index of results that cannot be opened, read or written
    │   └── BusyStoreError     now, but may be soon (perfrun.store.patience)
    ├── ExplainFailed       1  a side of an explanation fails (perfrun.explain.turns)
    ├── Interrupted       130  Ctrl-C or a termination signal
    ├── EngineError         2  setup.py: no engine answers (perfrun.image.engine)
    ├── BuildError          1  setup.py: the image could not be built (perfrun.image.build)
    └── LoadError           1  setup.py: a saved image could not be loaded (perfrun.image.saved)

A benchmark that fails is not an error of perfrun: it is an `Outcome`. Only `main` of
`perfrun.benchmark` catches these errors, and for setup.py `main` of `perfrun.image.command`.
"""


class PerfrunError(Exception):
    """Base of all errors that perfrun raises on purpose; the user reads the text."""

    exit_code = 3

    @property
    def line(self) -> str:
        """The text as one line: line ends, of a path in it for example, are escaped.

        Blanks of any width stay, as French messages have before a colon; a tab becomes one.
        """
        from unicodedata import category  # a megabyte of tables, only for an error

        return "".join(
            c
            if c.isprintable() or category(c) == "Zs"
            else c.encode("unicode_escape").decode("ascii")
            for c in str(self).replace("\t", " ")
        )


class UsageError(PerfrunError):
    """The user's request is wrong. One line: what is wrong, where, what to do."""

    exit_code = 2


class WorkspaceError(PerfrunError):
    """Code or data of a run cannot be put into the workspace as asked."""

    exit_code = 2


class StoreError(PerfrunError):
    """An index of results cannot be opened, read or written; the summaries are untouched."""

    exit_code = 2


class Interrupted(PerfrunError):  # noqa: N818 - it is a state of the run, not a mistake
    """The user, or the system, asked the run to stop."""

    exit_code = 130
