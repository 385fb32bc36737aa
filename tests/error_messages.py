"""Every message with which perfrun ends a command, read from its code.

    python tests/error_messages.py

writes docs/reference/messages.md anew: new messages come, those that are gone go, and the advice of
all others stays. The advice of a new message is a link until somebody writes it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "perfrun"
PAGE = ROOT / "docs" / "reference" / "messages.md"
BASE = "PerfrunError"
SAID = ("_say",)  # what the entry point prints without an error of its own


@dataclass(frozen=True)
class Message:
    """One message: its text with `<name>` for each part that varies, and where it is raised."""

    text: str
    module: str
    line: int

    @property
    def key(self) -> str:
        """The text without the names of its varying parts, which code may change."""
        return key(self.text)


def key(text: str) -> str:
    """Return a message's text without the names of its varying parts."""
    return re.sub(r"<[^<>]*>", "<>", " ".join(text.split()))


def error_classes(trees: dict[str, ast.Module]) -> set[str]:
    """Return the names of PerfrunError and of all classes below it."""
    bases: dict[str, set[str]] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = {base.id for base in node.bases if isinstance(base, ast.Name)}
                bases.setdefault(node.name, set()).update(names)
    found = {BASE, *SAID}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def messages() -> list[Message]:
    """Return the messages of all modules, in the order of modules and lines."""
    trees = {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    errors = error_classes(trees)
    everywhere = {name: one for tree in trees.values() for name, one in _functions(tree).items()}
    found: dict[str, Message] = {}
    for module, tree in trees.items():
        for text, line in _raised(tree, errors, everywhere):
            message = Message(text=text, module=module, line=line)
            found.setdefault(message.key, message)
    return list(found.values())


@cache
def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _raised(
    tree: ast.Module, errors: set[str], everywhere: dict[str, ast.FunctionDef]
) -> Iterator[tuple[str, int]]:
    own = _functions(tree)
    functions = {**everywhere, **own}
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in [*own.values(), tree]:
        scope = Scope(function, functions, constants)
        for node in _own_nodes(function):
            if isinstance(node, ast.Call) and _name(node.func) in errors and node.args:
                for text in scope.texts(node.args[0]):
                    yield text, node.lineno


@cache
def _own_nodes(function: ast.AST) -> list[ast.AST]:
    """Return the nodes of a function that are in no function within it."""
    found: list[ast.AST] = []

    def add_below(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef):
                found.append(child)
                add_below(child)

    add_below(function)
    return found


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


class Scope:
    """The texts that an expression of a function can have."""

    def __init__(
        self,
        function: ast.AST,
        functions: dict[str, ast.FunctionDef],
        constants: dict[str, ast.expr],
    ) -> None:
        self.functions = functions
        self.constants = constants
        self.assigned: dict[str, list[ast.expr]] = {}
        for node in _own_nodes(function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.assigned.setdefault(target.id, []).append(node.value)

    def texts(self, node: ast.expr) -> list[str]:
        """Return the texts of an expression that are more than its varying parts."""
        found = self._texts(node, 0)
        return [text for text in dict.fromkeys(found) if re.search(r"[a-z]{2}", key(text))]

    def _texts(self, node: ast.expr, depth: int) -> list[str]:
        if isinstance(node, ast.Constant):
            return [str(node.value)]
        if isinstance(node, ast.JoinedStr):
            return ["".join(_part(value) for value in node.values)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            rights = self._texts(node.right, depth)
            return [one + two for one in self._texts(node.left, depth) for two in rights]
        if isinstance(node, ast.IfExp):
            return [*self._texts(node.body, depth), *self._texts(node.orelse, depth)]
        if depth < 3 and isinstance(node, ast.Name):
            values = self.assigned.get(node.id) or [
                *([self.constants[node.id]] if node.id in self.constants else [])
            ]
            if values:
                return [text for value in values for text in self._texts(value, depth + 1)]
        if depth < 3 and isinstance(node, ast.Call) and _name(node.func) in self.functions:
            function = self.functions[_name(node.func)]
            inner = Scope(function, self.functions, self.constants)
            returned = [
                one.value
                for one in _own_nodes(function)
                if isinstance(one, ast.Return) and one.value is not None
            ]
            return [text for value in returned for text in inner._texts(value, depth + 1)]
        return [f"<{_label(node)}>"]


def _part(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    return f"<{_label(value.value)}>" if isinstance(value, ast.FormattedValue) else "<>"


def _label(node: ast.expr) -> str:
    """Return a word for a part that varies: the name of what is put there."""
    while isinstance(node, ast.Call):
        name = _name(node.func)
        inner = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        if not inner:
            return name.strip("_").replace("_", " ")
        node = inner[0]
    if isinstance(node, ast.Subscript):
        return _label(node.value)
    return _name(node).strip("_").replace("_", " ") or "..."


def rows(page: str) -> dict[str, str]:
    """Return the messages of the page with the advice of each."""
    found = {}
    for line in page.split("\n"):
        row = re.match(r"\| (``? ?)(.*?)( ?``?) \| (.*) \|$", line)
        if row:
            found[key(row[2].replace("\\|", "|"))] = row[4].strip()
    return found


def row(message: Message, advice: str) -> str:
    """Return the line of the page for a message."""
    text = " ".join(message.text.split()).replace("|", "\\|")
    ticks, blank = ("``", " ") if "`" in text else ("`", "")
    return f"| {ticks}{blank}{text}{blank}{ticks} | {advice} |"


def page(text: str) -> str:
    """Return the text of the page with all messages of today; introduction and advice stay."""
    advice = rows(text)
    parts = [text.partition("\n## ")[0].rstrip() + "\n"]
    found = sorted(messages(), key=lambda one: one.key)
    for title, more, modules in SUBJECTS:
        of_subject = [one for one in found if one.module.startswith(modules)]
        found = [one for one in found if one not in of_subject]
        default = f"See {more}"
        lines = [row(one, advice.get(one.key) or default) for one in of_subject]
        parts.append(
            "\n".join([f"## {title}", "", "| message | what to do |", "|---|---|", *lines, ""])
        )
    if found:
        raise ValueError(f"SUBJECTS has no subject for {sorted({one.module for one in found})}")
    return "\n".join(parts)


# title, page, the beginnings of its modules' paths; the first that fits counts.
SUBJECTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "The command line of a run",
        "[Command line](cli.md)",
        ("benchmark.py", "options/", "run/", "text"),
    ),
    (
        "Repositories, downloads and folders",
        "[Workspace](workspace.md)",
        ("workspace/", "locks", "durable"),
    ),
    (
        "Environments and containers",
        "[Containers](../guides/containers.md)",
        ("launchers/", "probes/"),
    ),
    (
        "Results and their index",
        "[Index over results](store.md)",
        ("summary/", "store/", "untrusted", "reports/", "show"),
    ),
    ("Replaying", "[Replaying results](../guides/replaying.md)", ("replay/",)),
    ("Comparing", "[Comparing results](../guides/comparing.md)", ("compare/", "baseline")),
    ("Frameworks side by side", "[perfrun versus](../guides/versus.md)", ("versus/",)),
    ("Changes and their commits", "[Detecting changes](../guides/detecting.md)", ("changes/",)),
    ("Incidents", "[Incidents](../guides/incidents.md)", ("incidents/",)),
    ("Nodes", "[Nodes of a fleet](../guides/nodes.md)", ("nodes/",)),
    ("Finding the cause", "[perfrun explain](../guides/explaining.md)", ("explain/",)),
    ("Reports", "[A report to send](../guides/report.md)", ("page/",)),
    ("Nightly suites", "[Nightly suites](../guides/nightly.md)", ("nightly/",)),
    ("Several machines", "[Several machines](../guides/fleet.md)", ("fleet/", "shards/")),
    ("Plotting", "[Plotting](../guides/plotting.md)", ("plots/",)),
    ("The server", "[A live page](../guides/serve.md)", ("serve/",)),
    (
        "Results of other tools",
        "[Suites of other tools](../guides/suites.md)",
        ("exchange/", "adapters/"),
    ),
    ("Notebooks", "[Notebooks](../guides/notebook.md)", ("notebook/",)),
    ("doctor, selftest, dlbs", "[Command line](cli.md)", ("doctor/", "selftest/", "dlbs/")),
    ("Images: setup.py", "[Containers](../guides/containers.md)", ("image/",)),
)

if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
