"""The schedules in deploy/ are valid for the programs that read them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perfrun.compare.command import parser as compare_parser
from perfrun.compare.markdown import MARKER
from perfrun.nightly.suite import units
from perfrun.nightly.suite_file import read_suite
from perfrun.options.command_line import parse
from perfrun.options.store_address import parse_address

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
COMMAND = re.compile(r"perfrun nightly --quiet \S*(models|suite|%i)\.toml|\"\$SUITE\"")


def load_yaml(path: Path) -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_suite_to_begin_with_is_right_and_names_a_shipped_benchmark() -> None:
    suite = read_suite(DEPLOY / "suite.toml")
    (unit,) = units(suite)
    module, _, rest = unit.methods[0].selector.text.partition(".Interpreter.")
    text = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    assert f"def {rest}(self)" in text
    assert suite.workspace.resolve() == ROOT / "workspace"


@pytest.mark.parametrize("scope", ["system", "user"])
def test_systemd_finds_nothing_wrong_with_the_units(scope: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    folder = DEPLOY / "systemd" / ("user" if scope == "user" else "")
    names = []
    for kind in ("service", "timer"):
        text = (folder / f"perfrun-nightly@.{kind}").read_text(encoding="utf-8")
        # Where the program is differs; that it is somewhere is all that can be checked here.
        text = re.sub(r"(ExecStart=)\S+", r"\g<1>/bin/true", text)
        names.append(f"perfrun-nightly@models.{kind}")
        (tmp_path / names[-1]).write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", f"--{scope}", "verify", *(f"./{name}" for name in names)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("systemd/**/*.service")), ids=lambda p: str(p))
def test_a_night_that_found_a_failure_is_not_run_again(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "\nRestart=on-abnormal\n" in text
    assert COMMAND.search(text)


def test_the_line_for_cron_has_five_times_a_user_and_the_command() -> None:
    text = (DEPLOY / "cron" / "perfrun").read_text(encoding="utf-8")
    assert text.endswith("\n")  # cron ignores a last line without
    (line,) = (x for x in text.splitlines() if x and not x.startswith("#") and "=" not in x)
    *times, user, command = line.split(maxsplit=6)
    assert len(times) == 5
    assert all(re.fullmatch(r"\*|\d+", time) for time in times)
    assert user == "perfrun"
    assert COMMAND.match(command)
    assert "%" not in command  # which cron takes for a new line


def test_the_checks_keep_the_pictures_that_the_tests_of_the_page_leave() -> None:
    (job,) = load_yaml(DEPLOY / "github" / "checks.yml")["jobs"].values()
    _, checks, pictures = job["steps"]
    assert (ROOT / checks["run"]).stat().st_mode & 0o100
    assert pictures["if"] == "always()"
    text = (ROOT / "tests" / "browser" / "conftest.py").read_text(encoding="utf-8")
    assert 'parents[2] / "build" / "screenshots"' in text
    assert pictures["with"]["path"] == "build/screenshots/"


def test_the_workflow_runs_on_a_machine_of_ones_own_and_its_scripts_are_shell() -> None:
    workflow = load_yaml(DEPLOY / "github" / "nightly.yml")
    assert set(workflow) == {"name", True, "concurrency", "permissions", "jobs"}  # `on` is True
    assert set(workflow[True]) == {"schedule", "workflow_dispatch"}
    (job,) = workflow["jobs"].values()
    assert job["runs-on"][0] == "self-hosted"
    assert set(job) == {"runs-on", "timeout-minutes", "services", "env", "steps"}
    for expression in re.findall(r"\$\{\{ (.*?) \}\}", (DEPLOY / "github/nightly.yml").read_text()):
        assert expression in ("github.workspace", "secrets.PERFRUN_POSTGRES_PASSWORD")
    composed = load_yaml(ROOT / "docker-compose.yml")["services"]["postgres"]
    service = job["services"]["postgres"]
    assert set(service) == {"image", "env", "ports", "volumes", "options"}
    assert service["image"] == composed["image"]
    assert service["env"].keys() == composed["environment"].keys()
    assert service["ports"] == ["127.0.0.1:5432:5432"]  # on no other network of the machine
    assert composed["healthcheck"]["test"][1] in service["options"]
    assert service["volumes"] == ["perfrun-index:/var/lib/postgresql/data"]
    # What the suite to begin with says of the store is what the service serves.
    text = (DEPLOY / "github/nightly.yml").read_text(encoding="utf-8")
    (store,) = re.findall(r'store = "(.*)"', text)
    url = store.replace("${PERFRUN_POSTGRES_PASSWORD}", "word")
    assert parse_address(url, ROOT).url == "postgresql+psycopg://perfrun:word@localhost/perfrun"
    for step in job["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert set(step) <= {"name", "run", "uses", "with", "if"}
        if "run" in step:
            subprocess.run(["bash", "-n", "-c", step["run"]], check=True)
    scripts = "\n".join(step.get("run", "") for step in job["steps"])
    assert 'perfrun nightly --quiet "$SUITE"' in scripts


def check_comparison(scripts: list[str]) -> None:
    """Each script is shell, and its command lines of perfrun are right."""
    for script in scripts:
        subprocess.run(["bash", "-n", "-c", script], check=True)
    text = "\n".join(scripts).replace("\\\n", " ")
    found = [
        shlex.split(line.partition(">")[0])
        for line in text.splitlines()
        if line.lstrip().startswith("perfrun ")
    ]
    ran, compared = (
        [word.replace("$METHODS", "benchmarks.cases.Cases.filter:.*") for word in words]
        for words in found
    )
    assert parse(ran[1:]).num_trials == 2
    given = compare_parser().parse_args(compared[2:])
    assert (given.base, given.new, given.format) == ("label:base", "label:new", "markdown")
    assert given.workspace == "results"
    assert "--workspace=results" in ran
    # A folder here, and no package of the workspace: `base` would be that.
    sides = re.findall(r"for side in (.*); do", text)[0].split()
    (path,) = re.findall(r'--python_path="(.*?)"', text)
    assert all(path.replace("$side", side).startswith(".") for side in sides)
    assert f'startswith("{MARKER}")' in text


def test_the_workflow_of_a_pull_request_comments_once_and_runs_no_stranger() -> None:
    workflow = load_yaml(DEPLOY / "github" / "pull_request.yml")
    assert set(workflow) == {"name", True, "concurrency", "permissions", "jobs"}
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    (job,) = workflow["jobs"].values()
    assert job["if"] == "github.event.pull_request.head.repo.full_name == github.repository"
    assert job["runs-on"][0] == "self-hosted"
    for step in job["steps"]:
        assert ("run" in step) != ("uses" in step)
        # What others write, as the name of a branch, is no part of a script.
        assert "${{" not in step.get("run", "")
    check_comparison([step["run"] for step in job["steps"] if "run" in step])


def test_the_job_of_a_merge_request_has_keys_that_gitlab_knows() -> None:
    (job,) = load_yaml(DEPLOY / "gitlab" / "merge_request.yml").values()
    assert set(job) <= {
        *("stage", "tags", "timeout", "interruptible", "rules", "variables", "script"),
        *("after_script", "artifacts"),
    }
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "merge_request_event"'}]
    check_comparison([*job["script"], *job["after_script"]])


def test_compose_has_a_night_and_a_server_for_the_index() -> None:
    services = load_yaml(ROOT / "docker-compose.yml")["services"]
    night, runner = services["nightly"], services["perfrun"]
    assert night["command"] == ["nightly", "--quiet", "/suites/suite.toml"]
    # The list of volumes replaces the runner's: it has to hold all of those, too.
    assert [volume for volume in runner["volumes"] if volume not in night["volumes"]] == []
    assert night["cap_drop"] == ["ALL"]
    assert services["postgres"]["ports"][0].startswith("127.0.0.1:")
    assert {service: services[service]["profiles"] for service in ("nightly", "postgres")} == {
        "nightly": ["nightly"],
        "postgres": ["postgres"],
    }
