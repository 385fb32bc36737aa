"""All commands, in the groups of `perfrun --help`. A new command is one line of this table.

The line of a command says where its function is; only the module of the command that is given is
imported. It takes the words after the command's name and returns the exit status.
"""

from __future__ import annotations

from perfrun.options.parsers import ALIKE, nearest

# group: {command: (module, function, its line in the help)}
GROUPS: dict[str, dict[str, tuple[str, str, str]]] = {
    "run": {
        "run": ("perfrun.run.command", "run_command", "run benchmark methods, or your own file"),
        "list": ("perfrun.run.listing", "list_command", "print the methods that can be run"),
        "show": ("perfrun.show.command", "show_command", "show one trial on one screen"),
        "report": ("perfrun.page.command", "report_command", "write results as one HTML page"),
        "init": ("perfrun.nightly.init", "init_command", "write a first class, suite and schedule"),
    },
    "judge": {
        "compare": ("perfrun.compare.command", "compare_command", "compare two sets of results"),
        "ab": ("perfrun.compare.ab", "ab_command", "run two variants in pairs until it is decided"),
        "baseline": (
            *("perfrun.compare.baseline_command", "baseline_command"),
            "name a set of results to compare with",
        ),
        "versus": ("perfrun.versus.command", "versus_command", "one model in several frameworks"),
        "replay": ("perfrun.replay.command", "replay_command", "run a result again: does it hold?"),
        "pack": (
            "perfrun.replay.pack_command",
            "pack_command",
            "put all a result needs in one file",
        ),
    },
    "history": {
        "index": ("perfrun.store.command", "index_command", "bring the index up to date"),
        "history": ("perfrun.changes.history", "history_command", "print the series of a method"),
        "plot": ("perfrun.plots.command", "plot_command", "draw results as SVG, PNG or text"),
        "detect": ("perfrun.changes.detect", "detect_command", "find when a figure changed"),
        "incidents": (
            *("perfrun.incidents.command", "incidents_command"),
            "list changes by their cause",
        ),
        "nodes": ("perfrun.nodes.command", "nodes_command", "name slow nodes, leave them out"),
        "bisect": ("perfrun.changes.bisect", "bisect_command", "find which commit changed it"),
        "explain": ("perfrun.explain.command", "explain_command", "say why a figure changed"),
        "serve": ("perfrun.serve.command", "serve_command", "show the results as a live page"),
        "nightly": ("perfrun.nightly.command", "nightly_command", "run a suite once a night"),
        "prune": ("perfrun.nightly.prune", "prune_command", "remove the folders of old trials"),
    },
    "fleet": {
        "submit": (
            *("perfrun.fleet.submit", "submit_command"),
            "run a suite on several machines",
        ),
        "fleet": ("perfrun.fleet.command", "fleet_command", "show what ran, and what is missing"),
        "shard": ("perfrun.fleet.shard_command", "shard_command", "run one shard of a submission"),
    },
    "machine": {
        "doctor": ("perfrun.doctor.command", "doctor_command", "what this machine has and lacks"),
        "selftest": (
            *("perfrun.selftest.command", "selftest_command"),
            "hold measurements against reference values",
        ),
        "completion": (
            *("perfrun.options.completion", "completion_command"),
            "print what completes words in bash, zsh, fish",
        ),
    },
    "other tools": {
        "import": ("perfrun.exchange.command", "import_command", "read results of another tool"),
        "export": ("perfrun.exchange.command", "export_command", "write results for another tool"),
        "dlbs": ("perfrun.dlbs.command", "dlbs_command", "run by the command line of DLBS"),
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
# Whoever mistypes a command must not be led to one that removes what was measured.
_NEVER_SUGGESTED = frozenset({"prune"})
_WIDTH = 10  # of a command's name


def overview() -> str:
    """Return all commands, each with its line, in their groups."""
    lines = ["commands (`perfrun help COMMAND` tells more):"]
    for title, group in GROUPS.items():
        lines.append(f"  {title}")
        lines += [f"    {name:<{_WIDTH}} {text}" for name, (_, _, text) in group.items()]
    return "\n".join(lines)


def nearest_command(word: str) -> str | None:
    """Return the command that was probably meant, never one that removes something."""
    return nearest(word, [name for name in COMMANDS if name not in _NEVER_SUGGESTED], ALIKE)
