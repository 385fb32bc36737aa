"""Text from outside, made fit for the medium that shows it: one function for each medium.

Names, notes, exceptions, labels, subjects of commits and answers of servers are written by others.
On a terminal they could move the cursor, hide what perfrun says or forge a line of it; in Markdown
they could mention people and load pictures. What a medium cannot show as text is written out as
`\\x1b`, and passwords are left out (`perfrun.text.redact`). So text is cleaned where it leaves:

    lines on a terminal, in a log   `line`, `page`, `write_lines`, `write_prose`, `say`
    cells of a table                `cell`
    what a benchmark prints         `LiveText`
    Markdown, JUnit, OpenMetrics    `markdown`, `markdown_code`, `xml`, `label`
    JSON                            `write_json`; json.dumps itself escapes all but ASCII
    CSV                             `csv_text`
    messages of Slack, Teams        `slack`, `teams`; those of Discord are Markdown
    HTML in a notebook              `perfrun.notebook.display`
    commands in Markdown            `markdown_command`
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping

from perfrun.text import columns, redact, redacted

TYPE_CHECKING = False  # as type checkers read it: `typing` is no part of `perfrun --help`
if TYPE_CHECKING:
    from typing import Any, TextIO

LONGEST_LINE = 4000  # characters
LONGEST_CELL = 500
_NARROWEST = 20  # columns; what is shorter is not cut
MARK = "| "  # before a line of a benchmark that looks like one of perfrun's
# Blanks of any width, as French messages have before a colon.
_BLANKS = frozenset(
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
_PLAIN = r"[\t\n\x20-\x7e]*"
_MARKDOWN = {ord(character): f"\\{character}" for character in r"\`*_[]<>|#~&!$"}
# GitHub's parser goes back over letters alone: after a digit, `http://` begins a link. Letters are
# those of ASCII: with (?i), [a-z] also takes the long s and the sign of the kelvin.
_MARKDOWN_LINK = r"(?<![A-Za-z])((?i:https?|ftp|mailto|xmpp|ssh|git|file)(?=:)|(?i:www)(?=\.))"
# A host may begin with a hyphen or an underscore there, which Markdown escapes.
_MARKDOWN_NAME = r"(@|\\#|GH-)(?=[A-Za-z0-9._\\-])"
_MARKDOWN_MAIL = r"(?<=[A-Za-z0-9.+_-])(@)"
_MAIL_OR_MENTION = r"([@#])(?=[A-Za-z0-9])"
_MARKDOWN_BLOCK = r"(\d{1,9})([.)])(?=\s|$)|[-+=]"
_HEXADECIMAL = r"[0-9A-Fa-f.]{1,64}"
# What begins a formula, also in the wide characters that some spreadsheets take for these.
_FORMULA = ("=", "+", "-", "@", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# A mention or the number of an issue is none with this between; it takes no room.
_JOINER = "\u2060"
# Sequences that a terminal acts upon: CSI, then those with a text of their own, then short ones.
_SEQUENCE = (
    r"\x1b\[(?P<values>[0-?]{0,64})(?P<between>[ -/]{0,8})(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)|\x1b[ -/]{0,8}[0-OQ-WYZ\\`-~]"
)
_CUT_SEQUENCE = r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[\]PX^_][^\x07\x1b\x9c]{0,4096}\x1b?|[ -/]{0,8})\Z"
_COLOURS = r"[0-9;:]{0,64}"
_CONCEALED = r"(?:^|;)0{0,8}8(?:;|$)"
_LINES = r"[^\n\r]*[\n\r]|[^\n\r]+"
_INVISIBLE = (
    r"(?:[\s\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\x00-\x08]|\x1b\[[0-9;:]{0,64}[mK])"
)
_OURS = (
    rf"(?i){_INVISIBLE}{{0,50}}"
    r"(?:perfrun[ :]|(?:\[\d{1,9}(?:/\d{1,9})?\] )?\S{1,300}, trial \d{1,9}"
    r"|\[\d{1,9}/\d{1,9}\] b/a )"
)
_IN_OURS = ("perfrun", ", trial ", "] b/a ")
_LONGEST_START = 1000  # characters of a line in which its look is recognised


def visible(text: str, keep: str = "") -> str:
    """Return the text with all that is not printable written out, except blanks and `keep`."""
    if text.isprintable() or (keep.startswith("\t\n") and re.fullmatch(_PLAIN, text)):
        return text
    written_out = {
        ord(c): c.encode("unicode_escape").decode("ascii")
        for c in set(text)
        if not (c.isprintable() or c in _BLANKS or c in keep)
    }
    return text.translate(written_out) if written_out else text


def line(text: str, most: int = LONGEST_LINE) -> str:
    """Return the text as one line for people: line ends written out, a tab as a blank."""
    shown = visible(_redacted(text, most).replace("\t", " "))
    if len(shown) <= most:
        return shown
    return f"{shown[:most]}... ({max(len(text), len(shown)) - most} more characters)"


def _redacted(text: str, most: int = LONGEST_LINE) -> str:
    """Redact more than is shown: a password that was cut in two would not be known for one."""
    return redact(text[: 4 * most])


def cell(text: str) -> str:
    """Return the text for a cell of a table."""
    return line(text, LONGEST_CELL)


def width(text: str) -> int:
    """Return how many columns of a terminal a text takes: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width  # names are nearly always ASCII

    return sum(
        0 if category(c) in ("Mn", "Me", "Cf") else 2 if east_asian_width(c) in "WF" else 1
        for c in text
    )


def page(lines: Iterable[str]) -> str:
    """Return lines as one text; each ends with the only line end in it."""
    return "".join(f"{line(one)}\n" for one in lines)


def block(text: str) -> str:
    """Return a text of several lines; it keeps its line ends and tabs, and nothing else."""
    return visible(redact(text), "\t\n")


def write_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Write lines to standard output, or to another stream."""
    (stream or sys.stdout).write(page(lines))


def write_prose(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Write lines to standard output; a terminal gets them cut at blanks, a pipe as they are."""
    target = stream or sys.stdout
    write_lines((part for one in lines for part in fitting(line(one), target)), target)


def say(text: str) -> None:
    """Write one line of perfrun's own to standard error."""
    write_prose([f"perfrun: {text}"], sys.stderr)


def fitting(text: str, stream: TextIO) -> list[str]:
    """Return a line as a stream shows it: cut at blanks for a terminal on which it has no room.

    What is longer than the terminal and has no blank, as a path, stays whole.
    """
    if len(text) < _NARROWEST or not stream.isatty() or width(text) <= (room := columns(stream)):
        return [text]
    indent = 2 + len(text) - len(text.lstrip(" "))
    lines, taken = [""], 0
    for word in re.split(r"(?<=[^ ])(?= )", text.rstrip(" ")):
        if taken and taken + width(word) > room:
            word = f"{'':<{indent}}{word.lstrip(' ')}"
            lines.append("")
            taken = 0
        lines[-1] += word
        taken += width(word)
    return lines


def write_json(document: Mapping[str, Any], stream: TextIO | None = None) -> None:
    """Write a document to standard output, without secrets; it is one line of ASCII."""
    import json  # not for `perfrun --help`

    as_is(stream or sys.stdout).write(json.dumps(redacted(document)) + "\n")


def as_is(stream: TextIO) -> TextIO:
    """Return the stream below one that cleans what is written to it (`perfrun.reports.output`)."""
    below: TextIO = getattr(stream, "as_is", stream)
    return below


def markdown(text: str, *, may_mention: bool = False) -> str:
    """Return the text for one line of Markdown: no link, picture, mention, HTML or heading in it.

    A backslash does not stop GitHub from taking `@name` and `#1` for links: an invisible character
    does, which stands between. Who wrote the suite `may_mention` people, who are no mail addresses.
    """
    plain = " ".join(visible(_redacted(text)[:LONGEST_LINE], "\t\n\r").split())
    escaped = re.sub(_MARKDOWN_LINK, r"\1\\", plain.translate(_MARKDOWN))
    escaped = re.sub(_MARKDOWN_MAIL if may_mention else _MARKDOWN_NAME, rf"\1{_JOINER}", escaped)
    first = re.match(_MARKDOWN_BLOCK, escaped)  # of a line it would begin a list or a heading
    if first is None:
        return escaped
    at = first.end(1) if first[1] else 0
    return f"{escaped[:at]}\\{escaped[at:]}"


def markdown_code(text: str) -> str:
    """Return a hash or a range of hashes as code; another text as `markdown` does."""
    return f"`{text}`" if re.fullmatch(_HEXADECIMAL, text) else markdown(text)


def markdown_command(words: Iterable[str]) -> str:
    """Return a command line as a block of code, which no word of it can end."""
    from shlex import join  # not for `perfrun --help`

    from perfrun.text import redact_words

    text = line(join(redact_words(list(words))))
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"


def slack(text: str, most: int = LONGEST_CELL) -> str:
    """Return the text for Slack's mrkdwn: no link, mention or formatting in it.

    Slack knows no escape but for three characters; an invisible one keeps the others from acting.
    """
    escaped = " ".join(line(text, most).split())
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        escaped = escaped.replace(character, entity)
    escaped = re.sub(_MARKDOWN_LINK, rf"\1{_JOINER}", escaped)
    escaped = re.sub(_MAIL_OR_MENTION, rf"\1{_JOINER}", escaped)
    escaped = re.sub(r"[*~`]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", _joined, escaped)
    return re.sub(r":(?=[a-z0-9_+-]{1,50}:)", f":{_JOINER}", escaped)


def teams(text: str, most: int = LONGEST_CELL) -> str:
    """Return the text for a TextRun of an Adaptive Card, which knows no Markdown.

    `{{DATE(...)}}` and `<at>` would act in some clients.
    """
    shown = " ".join(line(text, most).split())
    shown = re.sub(r"([{<@])(?=[{A-Za-z0-9/])", rf"\1{_JOINER}", shown)
    return re.sub(_MARKDOWN_LINK, rf"\1{_JOINER}", shown)


def _joined(found: re.Match[str]) -> str:
    """Return a character that begins or ends formatting so that it does neither."""
    return f"{_JOINER}{found[0]}{_JOINER}"


def xml(text: str) -> str:
    """Return the text with characters that XML allows; ElementTree escapes `<` and its like."""
    return visible(_redacted(text)[:LONGEST_LINE], "\t\n")


def label(text: str) -> str:
    """Return the text as the value of a label in OpenMetrics, without its quotes."""
    plain = visible(_redacted(text)[:LONGEST_LINE], "\n")
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def csv_text(text: str) -> str:
    """Return the text for a cell of a CSV file, without the quotes: no spreadsheet computes it.

    A program that opens such files takes a text that begins like a formula for one, which may run
    commands or send the sheet elsewhere. An apostrophe before it says that it is text.
    """
    plain = visible(_redacted(text)[:LONGEST_LINE])
    return f"'{plain}" if plain.lstrip().startswith(_FORMULA) else plain


class LiveText:
    """What a benchmark prints, piece by piece, as a stream shows it while the benchmark runs.

    A file gets it as it is, a terminal without what moves its cursor: colours, carriage returns and
    the erasing of a line stay. A line that looks like one of perfrun's has a mark before it.
    """

    def __init__(self, *, on_terminal: bool) -> None:
        self._on_terminal = on_terminal
        self._cut = ""  # the begin of a sequence whose end has not come yet
        self._line = ""  # the begin of the line that goes on
        self._is_marked = self._is_coloured = False
        self._ended = True  # with a line end

    def shown(self, text: str) -> str:
        """Return the next piece as it is to be shown."""
        if self._on_terminal:
            text = self._for_terminal(self._cut + text)
        if text:
            self._ended = text[-1] == "\n"
        lower = text.lower()
        if not self._line and not any(each in lower for each in _IN_OURS):
            after = max(text.rfind("\n"), text.rfind("\r")) + 1
            self._line, self._is_marked = text[after : after + _LONGEST_START], False
            return text
        return "".join(map(self._marked, re.findall(_LINES, text)))

    @property
    def is_closed(self) -> bool:
        """True when the last line is over, and the colours are the usual ones."""
        return self._ended and not self._is_coloured

    def closing(self) -> str:
        """Return what must be written before a line of perfrun: a line end, the usual colours."""
        ending = "\x1b[0m" if self._is_coloured else ""
        ending += "" if self._ended else "\n"
        self._cut = self._line = ""
        self._is_marked = self._is_coloured = False
        self._ended = True
        return ending

    def _marked(self, piece: str) -> str:
        """Return a line, or a part of one, with the mark if the line looks like one of perfrun's.

        When its begin has been shown already, the mark stands in the middle.
        """
        self._line = (self._line + piece)[:_LONGEST_START]
        mark = not self._is_marked and re.match(_OURS, self._line) is not None
        self._is_marked = self._is_marked or mark
        if piece[-1] in "\n\r":
            self._line, self._is_marked = "", False
        return f"{MARK}{piece}" if mark else piece

    def _for_terminal(self, text: str) -> str:
        self._cut = ""
        if "\x1b" in text[-5000:]:
            last = text.rfind("\x1b")
            for at in (text.rfind("\x1b", 0, last), last):  # the last may end what another began
                if at >= 0 and re.match(_CUT_SEQUENCE, text[at:]):
                    text, self._cut = text[:at], text[at:]
                    break
        parts, done = [], 0
        for found in re.finditer(_SEQUENCE, text):
            parts += [visible(text[done : found.start()], "\t\n\r"), self._allowed(found)]
            done = found.end()
        return "".join([*parts, visible(text[done:], "\t\n\r")])

    def _allowed(self, sequence: re.Match[str]) -> str:
        """Return a sequence that only colours text or erases its line; else nothing."""
        values, final = sequence["values"], sequence["final"]
        if sequence["between"]:
            return ""
        if final == "K" and values in ("", "0", "1", "2"):
            return sequence[0]
        if final == "m" and re.fullmatch(_COLOURS, values) and not re.search(_CONCEALED, values):
            self._is_coloured = True
            return sequence[0]
        return ""
