"""Passwords, tokens and keys that would be written down: by a run, a report, a log, a message."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perfrun.options.command_line import parse
from perfrun.run.journal import fingerprint
from perfrun.shown import line
from perfrun.summary.document import to_json
from perfrun.summary.reconstruction import reconstruct
from perfrun.text import redact, redact_words, redacted, without_path

SECRET = "Zq7S3CR3T"  # in every secret below, and nowhere else

HIDDEN = {
    "a password of a url": f"https://joe:{SECRET}@h/x",
    "a password with an at sign": f"https://joe:p@{SECRET}@h/x",
    "a password that begins with an at sign": f"https://joe:@{SECRET}@h/x",
    "a user with an at sign": f"https://joe@corp:{SECRET}@h/x",
    "a password with a slash": f"https://joe:a/{SECRET}@h/x",
    "a password with a number sign": f"https://joe:a#{SECRET}@h/x",
    "a password with a comma": f"https://joe:a,{SECRET}@h/x",
    "a token in the place of a user": f"https://{SECRET}@h/x",
    "a url in a flag": f"--mirror=https://u:{SECRET}@h/x",
    "a password of a server of packages": f"--index-url=https://__token__:{SECRET}@h/simple",
    "a url of ftp": f"ftp://u:{SECRET}@h/x",
    "a database": f"postgresql+psycopg://u:{SECRET} b@h/db",
    "auth in a query": f"https://h/x?auth={SECRET}",
    "pwd in a query": f"https://h/x?a=1&pwd={SECRET}",
    "pass in a query": f"https://h/x?a=1;pass={SECRET}",
    "a token after the number sign": f"https://h/x#token={SECRET}",
    "an access token after the number sign": f"https://h/cb#access_token={SECRET}&state=1",
    "a name in percents": f"https://h/x?%74oken={SECRET}",
    "the signature of a bucket": f"https://b.s3.amazonaws.com/x?X-Amz-Signature={SECRET}",
    "the shared access of a blob": f"https://a.blob.core.windows.net/c?sv=1&sig={SECRET}",
    "a webhook of Slack": f"https://hooks.slack.com/services/T0/B0/{SECRET}",
    "a webhook of Discord": f"https://discord.com/api/webhooks/1/{SECRET}",
    "a webhook of Teams": f"https://corp.webhook.office.com/webhookb2/{SECRET}",
    "a bot of Telegram": f"https://api.telegram.org/bot1:{SECRET}/sendMessage",
    "a variable that is a token": f"--env=HF_TOKEN={SECRET}",
    "a variable that is a key": f"--env=WANDB_API_KEY={SECRET}",
    "a variable that is a secret": f"AWS_SECRET_ACCESS_KEY={SECRET}",
    "a variable with a number": f"DB_PASSWORD2={SECRET}",
    "a variable in one word": f"PGPASSWORD={SECRET}",
    "a variable of credentials": f"GCP_CREDENTIALS={SECRET}",
    "a variable with a comma and an ampersand": f"MY_PASSWORD=a,b&{SECRET}",
    "a flag that is a token": f"--hf_token={SECRET}",
    "a flag that is a key": f"--api-key={SECRET}",
    "a flag that is a password in quotes": f"--password='a {SECRET}'",
    "a keyword of a call": f"connect(user='me', password='a b {SECRET}')",
    "a pair in JSON": json.dumps({"hf_token": f"a b {SECRET}"}),
    "a pair in JSON with an escaped quote": json.dumps({"password": f'a"{SECRET}'}),
    "a pair in JSON in JSON": json.dumps(json.dumps({"api_key": SECRET})),
    "a dictionary of Python": repr({"clientSecret": SECRET}),
    "a header": f"Authorization: Basic {SECRET}",
    "a header of a cookie": f"Cookie: a=1; session={SECRET}",
    "a header of its own": f"X-Api-Key: {SECRET}",
    "a bearer": f"curl -H 'Bearer {SECRET * 3}'",
    "a token of GitHub": f"ghp_{SECRET}{'a' * 27}",
    "a token of GitLab": f"see glpat-{SECRET}{'a' * 11}.",
    "a token of Hugging Face": f"label hf_{SECRET}{'a' * 25}",
    "a token of Slack": f"xoxb-1234567890-{SECRET}",
    "a JSON web token": f"eyJhbGciOiJIUzI1NiJ9.eyJ{SECRET}{'a' * 9}.{'b' * 20}",
    "a private key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END",
}  # fmt: skip

KEPT = [
    "--max_tokens=128", "--pad_token=<pad>", "--eos_token_id=2", "--num_key_value_heads=8",
    "--key_dim=64", "--key=batch", "--use_auth_token=true", "--pass=2", "--forward_pass=bf16",
    "--tokenizer=gpt2", "--input_signature=serving_default", "--seed=123456",
    "--token=0", "HF_TOKEN_PATH=/run/secrets/hf", "HF_TOKEN=$HF_TOKEN", "TOKENIZERS_PARALLELISM=1",
    "latency_ms=3.5, key=median", "tokens_per_second=1520.5", "keyboard=us", "monkey=2",
    "https://h:8080/a/b@v1", "git+https://github.com/o/r@main", "ssh://git@h/x.git", "git@h:x.git",
    "Enter the password:", "the token was refused: 401", "sk-learn-like-names-of-some-length",
    '{"metrics": [{"name": "key", "value": 1}], "grade": "A"}',
    "the bearer of bad news is here", "https://example.org/hooks.html", "x=1:y=2",
]  # fmt: skip


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN.keys())
def test_a_secret_is_hidden_wherever_text_leaves(text: str) -> None:
    assert SECRET not in redact(text)
    assert SECRET not in line(text)
    assert SECRET not in to_json({"perfrun": {"outcome": {"reason": f"x {text} y"}}})
    assert SECRET not in redact(f"before {text}") + redact(f"({text})")
    assert redact(redact(text)) == redact(text)
    again = json.loads(json.dumps(redacted({"a": [text]})))  # it stays a document
    assert SECRET not in repr(again)


@pytest.mark.parametrize("text", KEPT)
def test_what_only_looks_like_a_secret_is_kept(text: str) -> None:
    assert redact(text) == text
    assert redact_words([text]) == [text]


def test_what_is_hidden_already_is_not_taken_for_the_begin_of_a_password() -> None:
    shown = "postgresql://***@h:1/db is away; `perfrun index --store=postgresql://***@h:1/db` later"
    assert redact(shown) == shown


def test_the_word_after_a_flag_is_hidden_and_the_next_flag_is_not() -> None:
    words = ["--hf_token", SECRET, "--api-key", "--batch", "2", "--password", "-x", "--token", "0"]
    shown = redact_words(words)
    assert shown == ["--hf_token", "***", *words[2:8], "***"]


def test_a_value_is_hidden_by_its_key_and_figures_are_kept() -> None:
    document = {"MY_TOKEN": SECRET, "limits": {"max_tokens": "8", "token": 7}, "secret": ["x"]}
    assert redacted(document) == {**document, "MY_TOKEN": "***"}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", "https://hooks.slack.com/***"),
        ("https://u:p@chat.corp/hook/abc?key=1", "https://chat.corp/***"),
        ("http://h:9/hook", "http://h:9/hook"),
        ("no url", "***"),
    ],
)
def test_a_webhook_is_named_by_its_host(url: str, shown: str) -> None:
    assert without_path(url) == shown


_LEAK = """
import os, sys
from absl import flags
flags.DEFINE_string("hf_token", "", "")
flags.DEFINE_string("url", "", "")
flags.DEFINE_integer("max_tokens", 0, "")
class Leak:
    def __init__(self, *_, **given):
        self.given = given
    def run(self):
        F, env = flags.FLAGS, os.environ
        own = env["HF_TOKEN"]
        same = {own, env["DB_PASSWORD"], F.hf_token, self.given["api_key"]} == {own}
        print("given:", same and own.startswith("Zq7"), F.max_tokens)
        sys.stderr.write("login with password=" + own + " at https://joe:p@" + own + "@h/\\n")
        raise RuntimeError("refused: https://h/x?auth=" + own + "#token=" + own)
"""


def test_a_run_writes_down_no_secret_and_its_benchmark_gets_them_all(tmp_path: Path) -> None:
    (tmp_path / "leaking.py").write_text(_LEAK)
    words = [
        f"--workspace={tmp_path / 'w'}", f"--python_path={tmp_path}", "--format=json",
        "--benchmark_methods=leaking.Leak.run", f"--env=HF_TOKEN={SECRET}",
        "--env", f"DB_PASSWORD={SECRET}", f"--execution_label=https://u:p@{SECRET}@h/x",
        f"--system_name=host?token={SECRET}", "--store=" + f"{tmp_path / 'index.sqlite'}",
        "--perfzero_constructor_args=" + json.dumps({"api_key": SECRET}),
        "--", f"--hf_token={SECRET}", "--max_tokens=77", f"--url=https://u:{SECRET}@h/",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "perfrun", *words], capture_output=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert b"given: True 77" in done.stderr  # what it prints while it runs is shown as it is
    assert SECRET.encode() not in done.stdout
    assert json.loads(done.stdout)["results"][0]["status"] == "failed"
    # The benchmark's own: what it was given, what it printed and said.
    its_own = {"order.json", "outcome.json", "stdout.log", "stderr.log", "perfzero.log"}
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in its_own | {"leaking.py"}:
            assert SECRET.encode() not in path.read_bytes(), path
    summary = json.loads(next((tmp_path / "w/output").glob("*/perfzero_summary.json")).read_text())
    assert "--max_tokens=77" in summary["perfrun"]["benchmark_flags"]
    assert "the secret in the flags after --" in reconstruct(summary).lost


def test_resume_knows_runs_apart_whose_secrets_differ() -> None:
    plan = parse(["--benchmark_methods=a.B.c", "--", f"--hf_token={SECRET}"])
    other = parse(["--benchmark_methods=a.B.c", "--", "--hf_token=another"])
    assert plan.argv == other.argv
    assert plan.benchmark_flags == (f"--hf_token={SECRET}",)  # it is run with the real one
    assert fingerprint(plan) == fingerprint(replace(plan, argv=()))
    assert fingerprint(plan) != fingerprint(other)


@pytest.mark.parametrize(
    "words",
    [
        ["index", f"--store=postgresql://u:{SECRET}@h/db"],
        ["index", "--store", f"postgresql://u:{SECRET} x@h/db"],
        [f"--env=HF_TOKEN={SECRET}"],
        ["--", "--hf_token", SECRET],
    ],
    ids=["--store=", "--store and a word", "--env", "after --"],
)
def test_the_log_of_an_internal_error_holds_no_secret(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from perfrun import benchmark

    def broken(_words: list[str]) -> int:
        raise RuntimeError(f"cannot reach https://u:p@{SECRET}@h/ with {words!r}")

    monkeypatch.setattr(benchmark, "_command", broken)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert benchmark.main(words) == 3
    (log,) = tmp_path.glob("perfrun-error-*.log")
    assert "RuntimeError" in log.read_text()
    assert SECRET not in capsys.readouterr().err + log.read_text()
