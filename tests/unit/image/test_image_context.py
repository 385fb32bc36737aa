"""The copy of the build context: the checkout's part, the site's files, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from perfrun.image.context import CONTEXT, context_commands
from perfrun.image.spec import SiteFile

CHECKOUT = Path(__file__).resolve().parents[3]


def test_a_context_holds_what_the_dockerfile_copies_and_the_files_of_the_site(
    tmp_path: Path,
) -> None:
    wheels = tmp_path / "my wheels"
    wheels.mkdir()
    (wheels / "a.whl").write_text("wheel")
    (wheels / "linked.whl").symlink_to("a.whl")
    context = tmp_path / "context"
    context.mkdir()
    files = (SiteFile("wheels/0", wheels), SiteFile("framework.txt", None, "a==1\n"))
    before = sorted((CHECKOUT / "scripts" / "site").iterdir())

    script = " && ".join(context_commands(CHECKOUT, files))
    subprocess.run(["sh", "-c", script], check=True, env={**os.environ, "context": str(context)})

    assert {path.name for path in context.iterdir()} == set(CONTEXT)
    assert (context / "scripts/site/wheels/0/a.whl").read_text() == "wheel"
    assert (context / "scripts/site/framework.txt").read_text() == "a==1\n"
    ignored = (context / ".dockerignore").read_text().splitlines()
    assert "**/__pycache__" in ignored  # what is there of it never reaches the engine
    assert not (context / "scripts/site/wheels/0/linked.whl").is_symlink()
    assert (context / "scripts/site/wheels/0/linked.whl").read_text() == "wheel"
    assert sorted((CHECKOUT / "scripts" / "site").iterdir()) == before


def test_the_dockerfile_reads_nothing_that_a_context_lacks() -> None:
    dockerfile = (CHECKOUT / "Dockerfile").read_text("utf-8")
    lines = [line for line in dockerfile.splitlines() if line.startswith("COPY ")]
    sources = [line.split()[1] for line in lines]
    # A mount without a source is the whole context, in which perfrun's commit is looked for.
    mounts = [part.split()[0] for part in dockerfile.split("--mount=")[1:] if "source=" in part]
    sources += [mount.split("source=")[1].split(",")[0] for mount in mounts]

    assert len(sources) >= 8
    assert all(source.split("/")[0] in CONTEXT for source in sources)
    assert all((CHECKOUT / source).exists() for source in sources)
