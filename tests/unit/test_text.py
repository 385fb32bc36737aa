"""Secrets are taken out of text, and nothing else is."""

from __future__ import annotations

import string

import pytest
from cputime import cpu_ratio
from hypothesis import given
from hypothesis import strategies as st

from perfrun.text import redact

WORD = st.text(alphabet=string.ascii_letters + string.digits + "-_.%+!", min_size=8, max_size=30)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://joe:pw@h/x.git", "https://***@h/x.git"),
        ("https://ghp_token@h/x.git", "https://***@h/x.git"),
        ("https://:pw@h/x.git", "https://***@h/x.git"),
        ("https://joe:p:w@h:8443/x.git", "https://***@h:8443/x.git"),
        ("HTTPS://joe:pw@h/x", "HTTPS://***@h/x"),
        ("ssh://git@h/x.git", "ssh://git@h/x.git"),
        ("git+ssh://git@h/x.git", "git+ssh://git@h/x.git"),
        ("ssh://git:pw@h/x.git", "ssh://***@h/x.git"),
        ("git@h:x.git", "git@h:x.git"),
        ("https://h/x?token=abc&page=2", "https://h/x?token=***&page=2"),
        ("https://h/x?a=1&X-Amz-Signature=abc", "https://h/x?a=1&X-Amz-Signature=***"),
        ("https://h/x?sig=abc;main;123", "https://h/x?sig=***;main;123"),
        ("https://h/x?PASSWORD=abc,https://h/y", "https://h/x?PASSWORD=***,https://h/y"),
        ("https://a:b@h/x;main,https://c:d@h/y", "https://***@h/x;main,https://***@h/y"),
        ("https://h/@scope/package", "https://h/@scope/package"),
        ("see https://h/x, or mail a@b.c", "see https://h/x, or mail a@b.c"),
        ("file:///a/b@c", "file:///a/b@c"),
        ("--store=postgresql://u:Sec/ret@h:5432/db", "--store=postgresql://***@h:5432/db"),
        ("postgresql+psycopg://u@x:p w#[/@h/db and on", "postgresql+psycopg://***@h/db and on"),
        ("postgresql://u:p@ss@h/db", "postgresql://***@h/db"),
        ("postgresql://h/db: ask a@b", "postgresql://h/db: ask a@b"),
        ("", ""),
    ],
)
def test_what_is_hidden_and_what_is_not(text: str, shown: str) -> None:
    assert redact(text) == shown


@given(user=WORD, password=WORD, before=st.text(max_size=20), after=st.text(max_size=20))
def test_no_password_gets_through_whatever_is_around_it(
    user: str, password: str, before: str, after: str
) -> None:
    secret = f"{password}s3cr3t"
    assert secret not in redact(f"{before} https://{user}:{secret}@host/path {after}")


@given(
    name=st.sampled_from(["token", "access_token", "sig", "X-Amz-Credential", "api_key"]),
    value=WORD,
)
def test_no_signed_query_gets_through(name: str, value: str) -> None:
    secret = f"{value}s3cr3t"
    assert secret not in redact(f"https://h/x?a=b&{name}={secret}&c=d")


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


def test_a_word_of_a_million_letters_takes_no_time_to_speak_of() -> None:
    # It would be half an hour if each letter were tried as the beginning of a scheme of any length:
    # a hundred times as long for a word ten times as long.
    short, word = ("--env=A=" + "b" * letters for letters in (10_000, 100_000))
    assert cpu_ratio(lambda: redact(word), lambda: redact(short), rounds=3) < 40
    word = "--env=A=" + "b" * 1_000_000
    assert redact(word) == word
    assert redact(f"{word}://user:secret@host/") == f"{word}://***@host/"
