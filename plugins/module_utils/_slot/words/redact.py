# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Redact secrets in text before it leaves a host or enters a log. Pure: text in, text and counts out.

Three ways together. Known values are taken out wherever they stand. The value of a secret's name is taken out by its
structure: a quote to its own end, however often it was quoted again, a list, a table, an indented block, the next word
of a command. What looks like a secret is taken out by its form. `<secret>` stands in its place, so that the rest can
still be read.

Where a value's end can't be told, too much is taken rather than too little.
"""

from __future__ import annotations

import base64
import binascii
import csv
import html
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import quote, unquote

SECRET = "<secret>"
# Shorter values are too likely to be ordinary words; a real key is longer.
SHORTEST_KNOWN = 6
# Accounts of images: their names are common words and belong to nobody.
ORDINARY = frozenset({"admin", "b70", "debian", "git", "root", "ubuntu", "user", "vagrant"})

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MAYBE = re.compile(
    r"pass|pwd|pw\b|secret|cred|token|key|auth|bearer|cookie|jwt|psk|otp|pat|session|sig|policy|x-(?:amz|goog)"
)
_STRONG = frozenset(
    "password passwords passwd passphrase passcode passwort pwd secret secrets credential credentials creds bearer "
    "authorization cookie cookies jwt psk otp pgpass requirepass masterauth userpass userpwd rootpass dbpass authkey "
    "sshkey privkey".split()
)
_JOINED = (
    "password", "passwd", "passphrase", "secret", "apikey", "apikeys", "secretkey", "privatekey", "accesskey",
    "authtoken", "accesstoken", "refreshtoken", "identitytoken", "sessiontoken", "apitoken", "hftoken", "idtoken",
    "bottoken",
)  # fmt: skip
# A word before a secret's name that makes it a setting of its use.
_DOES = frozenset(
    "allow require requires has is no use enable disable check verify reset change forgot show hide".split()
)
# Before `key`, `token` or `pass`, these name no secret.
_BEFORE = frozenset(
    "num max min n eos bos pad unk sep cls mask stop start end image audio video think tool special added cache "
    "primary foreign sort public pub host hosts per partition group row column unique map dict lookup routing index "
    "value kv first last next cached prompt completion generation reasoning batched speculative total input output "
    "hot any each every by no with without use skip enable disable kernel compose type ordered same of proxy "
    "fastcgi uwsgi".split()
)
# A name that ends so tells of a secret and holds none.
_ABOUT = frozenset(
    "file files path paths dir directory folder name names url uri length len size count limit type kind format header "
    "headers index ttl expiry expires expired timeout age digest fingerprint field column position present required "
    "enabled ok rules fields threshold budget min max algorithm per s ms seconds cache heads "
    "head parser mode init ids budget usage ratio rate "
    "authentication store manager provider plugin service helper class error errors".split()
)
_OF_KEYS = frozenset(
    "api access secret private auth admin client master account license session bearer refresh signing encryption ssh "
    "id security hub".split()
)
_OF_TEXT = frozenset("first last next each every stop eos bos pad prompt output input".split())
_ENGLISH = frozenset(
    "the a an it its this that is was no not in of for to with by from at on and or as be are has have".split()
)
_IN_QUERY = frozenset("key sig signature code policy auth pass sign awsaccesskeyid googleaccessid keypairid".split())
_HEADERS = frozenset("authorization cookie".split())


def _strength(name: str, sharp: bool = False) -> int:
    """Return 2 if the value is a secret, 1 if it is one where it looks random, else 0.

    :param sharp: the name is quoted or assigned.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    low = name.lower()
    if not words or not _MAYBE.search(low) or words[0] in ("load", "import") or low == "make-key":
        return 0
    about = words[-1] in _ABOUT
    found = 0
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        after = words[at + 1] if at + 1 < len(words) else ""
        many = word in ("keys", "tokens")
        if word in _STRONG or word.endswith(_JOINED):
            found = max(found, 0 if before in _DOES else 2)
        elif word in ("key", "keys", "token", "tokens", "pass", "pat", "pw", "pin", "auth", "session", "sid"):
            if (
                before in _BEFORE
                or (word == "token" and after in ("id", "type"))
                or (word == "key" and after == "value")
            ):
                continue
            if word == "key" or (many and before in _OF_KEYS) or word in ("token", "pass", "pat", "pw"):
                strong = word == "token" or bool(before) or (word in ("pass", "pw") and sharp)
                strong = strong or (word == "key" and bool(after) and name.isupper())
                strong = strong and (not after or name.isupper() or word in ("pass", "pw") or after == "id")
                found = max(found, 2 if strong else 1)
            else:
                found = max(found, 2 if word == "auth" and sharp and before == "http" else 1)
        elif word in ("sig", "signature") or low.startswith(("x-amz-s", "x-amz-c", "x-goog-s", "x-goog-c")):
            found = max(found, 1)
    return min(found, 1) if about and found else found


def is_secret_name(name: str) -> bool:
    """Tell whether the value of this name counts as a secret, whatever it is."""
    return _strength(name, sharp=True) == 2


_PATH = re.compile(r"(?:[\w.-]+:)?(?:~|\.{1,2})?/(?:[\w.@+=~-]+/)*[\w.@+=~-]*")
_HARMLESS = re.compile(
    r"true|false|none|null|nil|yes|no|on|off|auto|undefined|nan|~|basic|digest|not|required|missing|invalid|unset|empty"
    r"|expired|wrong|unknown|optional|str|string|object|bytes|redacted|hidden|masked|private|inherit|shared"
    r"|<[\w|/ .-]{1,20}>|[*.…-]+|[({\[][)}\]]|\$\{?[A-Z_][A-Z0-9_]*\}?|\$\([^)]*\)|\{\{[^{}]*\}\}|%\w+%|\"\"|''|",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"-?\d{1,5}(?:\.\d+)?")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_DIGEST = re.compile(r"(?:sha\d+|md5|blake\w+)[:-]", re.IGNORECASE)


def random_looking(word: str) -> bool:
    """Tell whether a word is the kind that no person makes up; digests, versions, paths and names of models are not."""
    if len(word) < 16 or _DIGEST.match(word):
        return False
    for part in re.findall(r"[A-Za-z0-9+=]{10,}", word):
        words = len(_WORDS.findall(part))
        if not _HEX.fullmatch(part) and words > 3 and len(part) / words <= (2.6 if part.lower() != part else 3.4):
            return True
    return False


def _any_random(text: str) -> bool:
    return any(random_looking(word) for word in re.findall(r"[\w+/=.~:-]{16,}", text)) or _credential(text)


def _credential(word: str) -> bool:
    """Tell whether this is `user:password` in base64, as registries keep it."""
    word = word.strip("\"'`\\ ")
    if len(word) < 8 or len(word) % 4 or not re.fullmatch(r"[A-Za-z0-9+/]+=*", word):
        return False
    try:
        plain = base64.b64decode(word, validate=True).decode("ascii")
    except (ValueError, binascii.Error):
        return False
    return plain.isprintable() and ":" in plain


def _harmless(value: str, name: str) -> bool:
    value = value.strip()
    if _HARMLESS.fullmatch(value) or value == SECRET:
        return True
    if _NUMBER.fullmatch(value):
        return not re.search("pass|pwd|pin|otp", name, re.IGNORECASE)
    if _PATH.fullmatch(value):
        return not random_looking(value.replace("/", "")) or name.lower().endswith(("file", "path", "dir"))
    return False


# One quote as it stands after any number of rounds of quoting.
_QUOTE = r"(?:\\*[\"'`]|\\+u002[27])"
_RUN = re.compile(rf"{_QUOTE}+")
_ONE = re.compile(_QUOTE)
_OPENS = re.compile(rf"({_QUOTE}+)$")
_BREAK = re.compile(r"(?:\n|\\+n)")
_SPACE = r"(?:[\s\0]|\\+[nrt]|\\+u0000|\\+x00|\\+0|\\(?=\s))"
# Where a line of a log begins: what journald and vLLM put before it.
_LOGGED = re.compile(
    r"(?:[ \t]*(?:\w{3} +\d+ [\d:]+|\d{4}-\d\d-\d\d[T ][\d:.,+Z-]+) [\w.-]+ [\w@.\\-]+\[\d+\]: ?){0,3}"
    r"(?:\(\w+(?: \w+=\w+)* pid=\d+\) ?)?"
    r"(?:(?:DEBUG|INFO|WARNING|ERROR) [\d:. -]+\[[\w./]+:\d+\] ?)?"
)
# Blanks between two parts of one thing, also over lines of a log.
_GAP = rf"(?:{_BREAK.pattern}{_LOGGED.pattern}|{_SPACE})*"
_SEP = re.compile(
    r"[ \t]*[\])]?(?:[ \t]*:[ \t]*(?:str|string|String|bytes|SecretStr|&str|Optional\[str\]|str \| None)[ \t]*=|"
    r"[ \t]*(?:=>|:=|[:=]+|->))[ \t]*"
)
_QUOTED_SEP = re.compile(rf"{_GAP}[\])]?{_GAP}(?:=>|:=|[:=]+|->){_GAP}")
_COMMA = re.compile(rf"{_GAP},?{_GAP}[bBuUrR]?(?={_QUOTE})")
_WRAP = re.compile(rf"(?:[A-Za-z_][\w.]{{0,40}}\(\s*)?[bBuUrRfF]{{0,2}}(?={_QUOTE})")
_VALUE_OF = re.compile(
    rf"(?:{_QUOTE}*{_GAP},?{_GAP}(?:- )?{_QUOTE}*)(?:value|val|content){_QUOTE}*{_GAP}[:=]{_GAP}", re.IGNORECASE
)
_TAGGED = re.compile(rf"{_QUOTE}*[^<>\n,]{{0,60}}>\s*|\s*</\w+>\s*<\w+>\s*")
_LEAD = re.compile(rf"{_LOGGED.pattern}(?P<indent>[ \t]*(?:- +)*)(?:export |set |ENV |ARG |setenv |[$#>+] )?{_QUOTE}*")
_OPENS_BLOCK = re.compile(r"(?:[|>][+-]?\d?|!!\w+|&\w+)*[ \t]*(?:#[^\n\\]*)?(?:\n|\\+n|$)")
_LIST_BELOW = re.compile(rf"(?:[|>][+-]?\d?[ \t]*{_BREAK.pattern}|{_BREAK.pattern}(?:{_LOGGED.pattern})[ \t]*- )")
_BRACKET = re.compile(rf"{_QUOTE}+|[\[\](){{}}]")
_NAME = re.compile(r"(?:(?<![\w.$-])|(?<=\\0))-{0,2}[A-Za-z_][\w.-]*")
_ESCAPED = re.compile(r"(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrtabfv])")
_QUERY = re.compile(r"(?:[?&]|&amp;|\\u0026)$")
_MOST = 20000


@dataclass(frozen=True)
class _Span:
    """One value: the part that is replaced, and what stands around the word in its place."""

    start: int
    end: int
    before: str = ""
    after: str = ""


def _tokens(run: str) -> list[str]:
    return _ONE.findall(run)


def _ends_value(text: str, at: int) -> bool:
    """Tell whether a quote may close here: in broken quoting and in shells, a value goes on behind a quote."""
    return at >= len(text) or not re.match(r"[\w@+/~!$^*-]", text[at])


def _closing(text: str, at: int, opening: str, limit: int = _MOST) -> re.Match[str] | None:
    """Return the run of quotes that closes `opening`, in a text whose value begins at `at`."""
    tokens = _tokens(opening)
    last = tokens[-1]
    back, same = len(last) - len(last.lstrip("\\")), last.lstrip("\\")
    count = 0
    for token in reversed(tokens):
        if token != last:
            break
        count += 1
    at_end = min(len(text), at + limit)
    for run in _RUN.finditer(text, at, at_end):
        found = _tokens(run[0])
        first = found[0]
        if first.lstrip("\\") != same:
            continue
        slashes = len(first) - len(first.lstrip("\\"))
        if slashes > back and slashes % (2 * (back + 1)) != back:
            continue
        equal = 0
        for token in found:
            if token != first:
                break
            equal += 1
        doubled = len(found) == equal and slashes == back and (equal // count) % 2 == 0
        if doubled or (not _ends_value(text, run.end()) and same in "\"'`"):
            continue
        return run
    return None


def _line_end(text: str, at: int, token: str) -> int:
    """Return the end of the line at `at`, in a text whose lines end in `token`, or of the string that has this line."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    if token == "\n":
        return end
    found = re.compile(rf"(?<!\\){re.escape(token)}").search(text, at, end)
    end = found.start() if found else end
    for run in _RUN.finditer(text, at, end):
        outer = len(run[0]) - len(run[0].lstrip("\\")) < len(token) - 1
        inner = text.startswith(token, run.end()) or re.compile(r"\s*[=:]").match(text, run.end())
        if outer and not inner and _ends_value(text, run.end()):
            return run.start()
    return end


def _stripped(text: str, start: int, end: int) -> int:
    """Return the end without the blanks, brackets and commas that belong to what is around the value."""
    while end > start and text[end - 1] in " \t\r,;)]}>" and not text.endswith(SECRET, start, end):
        end -= 1
    return end


def _bare(text: str, at: int, query: bool, inside: bool) -> int:
    """Return the end of a value without quotes: the blank behind it, or the quote around it."""
    pos = at
    while pos < len(text) and pos - at < _MOST:
        run = _RUN.match(text, pos)
        if run:
            opens = pos == at or text[pos - 1] in "(=[{,:"
            if not opens and _ends_value(text, run.end()):
                break
            closing = _closing(text, run.end(), run[0]) if opens else None
            pos = closing.end() if closing and "\n" not in text[pos : closing.start()] else run.end()
            continue
        if text[pos].isspace() or text[pos] == "\0" or (inside and re.compile(_SPACE).match(text, pos)):
            break
        if query and text[pos] in "&#":
            break
        pos += 1
    return _stripped(text, at, pos)


def _container(text: str, at: int) -> int:
    """Return the end of the list or table that opens at `at`; 0 if it does not close."""
    depth, pos = 0, at
    while found := _BRACKET.search(text, pos, at + _MOST):
        pos = found.end()
        if found[0] in "[({":
            depth += 1
        elif found[0] in "])}":
            depth -= 1
            if depth == 0:
                return pos
        elif (closing := _closing(text, pos, found[0])) and "\n" not in text[pos : closing.start()]:
            pos = closing.start() + len(found[0])
    return 0


def _lead(text: str, start: int) -> tuple[str, str]:
    """Return what stands before `start` on its line, and what ended the line before. A quoted line's end counts."""
    begin = text.rfind("\n", 0, start) + 1
    token = "\n"
    for found in re.compile(r"\\+n").finditer(text, max(begin, start - 400), start):
        begin, token = found.end(), found[0]
    return text[begin:start], token


def _block(text: str, at: int, column: int, token: str) -> int:
    """Return the end of the lines below `at` that are indented further than `column`, or are its list."""
    end = at
    while text.startswith(token, end):
        begin = end + len(token)
        stop = _line_end(text, begin, token)
        line = text[begin:stop]
        logged = _LOGGED.match(line)
        line = line[logged.end() :] if logged else line
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        if body and not (indent > column or (indent == column and body.startswith("- "))):
            break
        end = stop
    while end > at and text[at:end].endswith(token):
        end -= len(token)
    return end


class _Scan:
    """Find the values of names in one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def spans(self) -> Iterator[tuple[str, _Span]]:
        """Yield names with their values, from the beginning to the end; no two overlap."""
        done = 0
        for found in _NAME.finditer(self.text):
            if found.start() < done:
                continue
            for name, start in self._readings(found):
                span = self._value(name, start, start + len(name))
                if span is not None and span.start >= done and span.end > span.start:
                    done = span.end
                    yield name, span
                    break

    def _readings(self, found: re.Match[str]) -> Iterator[tuple[str, int]]:
        name, start = found[0].rstrip(".-"), found.start()
        if not _MAYBE.search(name.lower()) and not (
            start and self.text[start - 1] in "?&;6" and _QUERY.search(self.text[max(0, start - 6) : start])
        ):
            return
        if start and self.text[start - 1] == "\\" and (escaped := _ESCAPED.match(name)):
            yield name[escaped.end() :], start + escaped.end()
        yield name, start

    def _value(self, name: str, start: int, end: int) -> _Span | None:
        text = self.text
        flag = name.startswith("-")
        plain = name.lstrip("-")
        if not plain or (flag and re.match(r"(?:no|use|with|enable|disable)-", plain)):
            return None
        opens = _OPENS.search(text[max(0, start - 80) : start])
        opening = opens[1] if opens else ""
        closes = _RUN.match(text, end)
        query = bool(_QUERY.search(text[max(0, start - 6) : start]))
        if not flag and not opening and (word := re.search(r"\b([A-Za-z]+) $", text[max(0, start - 14) : start])):
            plain = f"{word[1]}_{plain}" if word[1].lower() in _OF_KEYS | _OF_TEXT else plain
        sep = (_QUOTED_SEP if opening and closes else _SEP).match(text, closes.end() if opening and closes else end)
        assigned = bool(sep and "=" in sep[0]) or flag
        strength = _strength(plain, sharp=assigned or bool(opening and closes))
        if query and plain.replace("-", "").lower() in _IN_QUERY | {
            "xamzsignature",
            "xamzcredential",
            "xgoogsignature",
            "xgoogcredential",
        }:
            strength = 2
        if strength == 0:
            return None
        if start and text[start - 1] == "/" and not query:
            strength = 1
        if opening and closes:
            direct = _SEP.match(text, closes.end())
            lead, token = _lead(text, start)
            if direct and _LIST_BELOW.match(text, direct.end()) and (first := _LEAD.fullmatch(lead)):
                return self._indented(plain, strength, direct.end(), first, token)
            at = self._behind_quoted(name, start, closes, sep, opens)
            if at and text[at - 1] == ">" and (stop := text.find("</", at)) > 0:
                return self._kept(plain, strength, _Span(at, stop))
            return self._judged(plain, strength, at, opening=opening) if at else self._prose(plain, end)
        if sep:
            return self._assigned(plain, strength, start, sep, opening, query, flag)
        return self._apart(name, plain, strength, start, end)

    def _behind_quoted(
        self, name: str, start: int, closes: re.Match[str], sep: re.Match[str] | None, opens: re.Match[str] | None
    ) -> int:
        """Return where the value of a quoted name begins; 0 if it has none."""
        text = self.text
        if sep:
            told = name == "token" and re.compile(
                rf"[^\n]{{1,80}}?{_QUOTE},{_SPACE}*{_QUOTE}(?:logprob|bytes|prob)"
            ).match(text, sep.end())
            return 0 if told else sep.end()
        if about := _VALUE_OF.match(text, closes.start()):
            return about.end()
        tag = _TAGGED.match(text, closes.start())
        if tag and re.search(r"<[^<>]*$", _lead(text, start)[0]) and text[tag.end() - 1 : tag.end()] == ">":
            return tag.end()
        comma = _COMMA.match(text, closes.end())
        if name.startswith("-"):
            if comma:
                return comma.end()
            gap = re.compile(rf"{_SPACE}+").match(text, closes.end())
            return gap.end() if gap else 0
        if comma and "," in comma[0]:
            run = _RUN.match(text, comma.end())
            end = _closing(text, run.end(), run[0]) if run else None
            opener = re.search(rf"[(\[]\s*[bBuUrR]?{_QUOTE}+$", text[max(0, start - 40) : start])
            if end and opener and re.compile(rf"{_SPACE}*[)\]]").match(text, end.end()):
                return comma.end()
        return 0

    def _assigned(
        self, name: str, strength: int, start: int, sep: re.Match[str], opening: str, query: bool, flag: bool
    ) -> _Span | None:
        text, at = self.text, sep.end()
        lead, token = _lead(text, start)
        first = _LEAD.fullmatch(lead)
        if opening and not query:
            # The whole of a quoted assignment, whatever is in it.
            closing = _closing(text, at, opening)
            if closing and (first or "\n" not in text[at : closing.start()]):
                return self._kept(name, strength, _Span(at, closing.start()))
        if ":" in sep[0] and first and _OPENS_BLOCK.match(text, at):
            return self._indented(name, strength, at, first, token)
        if _RUN.match(text, at) or _WRAP.match(text, at) or text[at : at + 1] in ("[", "{", "("):
            return self._judged(name, strength, at)
        if first and not flag and not query:
            return self._kept(name, strength, _Span(at, _stripped_right(text, at, _line_end(text, at, token))))
        inside = bool(_RUN.search(lead)) or token != "\n"
        words = [word.lower() for word in _WORDS.findall(name)]
        if _HEADERS & set(words):
            scheme = re.compile(r"(?:bearer|basic|token|apikey|digest|negotiate)[ +]+", re.IGNORECASE).match(text, at)
            end = _bare(text, scheme.end(), query, inside) if scheme else _line_end(text, at, token)
            return self._kept(name, strength, _Span(at, end))
        end = _bare(text, at, query, inside)
        if sep[0].endswith(": ") and text[at:end].lower() in _ENGLISH:
            return None
        if re.search(r"[{,]\s*$", lead) and ":" in sep[0]:  # a table without quotes, whose values have blanks
            more = re.compile(r"(?:[;)>]* [^\s,{}\[\]\"':]+)+(?=[,}])").match(text, end)
            end = more.end() if more else end
        return self._kept(name, strength, _Span(at, end))

    def _indented(self, name: str, strength: int, at: int, lead: re.Match[str], token: str) -> _Span | None:
        stop = _line_end(self.text, at, token)
        inner = _BREAK.match(self.text, stop)
        if inner is None:
            return None
        end = _block(self.text, stop, len(lead["indent"]), inner[0])
        return self._kept(name, strength, _Span(at, end, "" if self.text[at - 1] == " " else " "))

    def _apart(self, name: str, plain: str, strength: int, start: int, end: int) -> _Span | None:
        """Find a value behind a blank, a bar or a tag."""
        text = self.text
        lead, token = _lead(text, start)
        inside = bool(_RUN.search(lead)) or token != "\n"
        if name.startswith("-"):
            gap = re.compile(rf"(?={_SPACE}){_GAP}(?:- +)?|(?={_QUOTE})").match(text, end)
            if not gap or text.startswith("--", gap.end()) or re.compile(r"-[A-Za-z]\b").match(text, gap.end()):
                return None
            if plain in ("api-key", "api-keys"):  # vLLM takes several
                more = re.compile(r"(?:[\w+/=.~:@,]+)(?: (?!-)[\w+/=.~:@,-]+)+").match(text, gap.end())
                if more:
                    return self._kept(plain, strength, _Span(gap.end(), more.end()))
            return self._below(plain, strength, gap, inside)
        if about := _VALUE_OF.match(text, end):
            return self._below(plain, strength, about, inside)
        if (lead.endswith("<") or re.search(r"<key>\s*$", lead)) and (tag := _TAGGED.match(text, end)):
            stop = text.find("</", tag.end())
            if stop > 0:
                return self._kept(plain, strength, _Span(tag.end(), stop))
        column = re.compile(r"[`*]*[ \t]*[|│┃][ \t]*").match(text, end)
        if (
            column
            and re.search(r"(?:^|[|│┃])[ \t*`]*$", lead)
            and not re.match(r"[^\n]*\n[ \t]*[|+:─━┼-][-\s|+:─━┼]*(?:\n|$)", text[column.end() :][:400])
        ):
            cell = re.compile(r"[ \t]*(?:[|│┃]|\n|$)").search(text, column.end())
            return self._kept(plain, strength, _Span(column.end(), cell.start() if cell else len(text)))
        if strength == 2 and (
            alone := re.compile(r"[ \t]+(\S*\w\S*)[ \t\r]*(?=\n|$)|(?:\t| {2,})(\S*\w\S*)").match(text, end)
        ):
            group = 1 if alone[1] else 2
            if _LEAD.fullmatch(lead) or re.search(
                r"\b(?:login|user|account)\s+\S+\s+$", text[max(0, start - 120) : start]
            ):
                return self._kept(plain, strength, _Span(alone.start(group), _stripped(text, *alone.span(group))))
        if re.search(
            r"(?:\b(?:login|account|setenv)\s+\S+\s+|\b(?:setenv|ENV)\s+)$", text[max(0, start - 120) : start]
        ):
            gap = re.compile(rf"{_SPACE}+").match(text, end)
            if gap:
                return self._judged(plain, strength, gap.end(), inside=inside)
        told = re.compile(r"(?: (?:is|was|provided|of|header|given|value)){1,2}:? +").match(text, end)
        if told and strength == 2:
            stop = _bare(text, told.end(), False, inside)
            if re.search(r"\d|[^\w.,'-]", text[told.end() : stop]):
                return self._judged(plain, strength, told.end(), inside=inside)
        return self._prose(plain, end)

    def _below(self, name: str, strength: int, gap: re.Match[str], inside: bool) -> _Span | None:
        """Find the value behind a gap; on a line of its own it is the rest of that line."""
        broken, text, at = _BREAK.search(gap[0]), self.text, gap.end()
        if not broken or _RUN.match(text, at):
            return self._judged(name, strength, at, inside=inside)
        return self._kept(name, strength, _Span(at, _stripped_right(text, at, _line_end(text, at, broken[0]))))

    def _prose(self, name: str, end: int) -> _Span | None:
        """Find a word that looks random soon after a name that sounds like a secret."""
        for word in re.compile(r"[\w+/=~.:-]+").finditer(
            self.text, end, min(_line_end(self.text, end, "\n"), end + 120)
        ):
            if word.start() - end > 40:
                break
            if random_looking(word[0]) and not _harmless(word[0], name):
                return _Span(word.start(), word.end())
        return None

    def _judged(self, name: str, strength: int, at: int, opening: str = "", inside: bool = True) -> _Span | None:
        """Find the value that begins at `at` by its own form."""
        text = self.text
        wrap = _WRAP.match(text, at)
        begin = wrap.end() if wrap else at
        run = _RUN.match(text, begin)
        if run:
            tokens = _tokens(run[0])
            if len(set(tokens)) == 1 and len(tokens) % 2 == 0 and _ends_value(text, run.end()):
                return None
            closing = _closing(text, run.end(), run[0])
            if closing and (
                "\n" not in text[run.end() : closing.start()]
                or len(tokens) >= 3
                or not re.search(rf"{_QUOTE}", text[run.end() : _line_end(text, run.end(), "\n")])
            ):
                return self._kept(name, strength, _Span(run.end(), closing.start()))
            return self._kept(name, strength, _Span(run.end(), _line_end(text, run.end(), "\n")))
        if text[at : at + 1] in ("[", "{", "("):
            end = _container(text, at) or _line_end(text, at, "\n")
            inner = _RUN.search(text, at, end)
            if not re.search(r"\w", text[at:end]):
                return None
            words = re.findall(r"[^\s,\[\](){}]+", text[at:end])
            if all(_harmless(word, name) for word in words):
                return None
            if end < len(text) and not _ends_value(text, end):
                end = _bare(text, end, False, inside)
            around = opening or (_tokens(inner[0])[0] if inner else "")
            return self._kept(name, strength, _Span(at, end, around, around))
        end = _bare(text, at, False, inside)
        return self._kept(name, strength, _Span(at, end, opening, opening))

    def _kept(self, name: str, strength: int, span: _Span) -> _Span | None:
        value = self.text[span.start : span.end]
        if _harmless(value, name) or value.strip("\"'`\\") == SECRET:
            return None
        return span if strength == 2 or _any_random(value) else None


def _stripped_right(text: str, start: int, end: int) -> int:
    while end > start and text[end - 1].isspace():
        end -= 1
    return end


def _cells(line: str, how: str) -> list[str]:
    if how == ",":
        with suppress(csv.Error, StopIteration):
            return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
        return []
    if how == " ":
        return re.split(r"\t+| {2,}", line.strip())
    return [cell.strip() for cell in line.strip().strip(how).split(how)]


def _columns(text: str) -> str:
    """Take out the cells below a secret's name in the head of a table."""
    if not _MAYBE.search(text.lower()):
        return text
    lines = text.split("\n")
    how, count = "", 0
    secret: list[int] = []
    for number, line in enumerate(lines):
        if not line.strip():
            how = ""
            continue
        if how:
            cells = _cells(line, how)
            if len(cells) == count:
                for at in secret:
                    cell = cells[at].strip("\"'`")
                    if len(cell) > 2 and not _harmless(cell, "password") and not re.fullmatch(r"[-:=─━ ]+", cell):
                        line = SECRET.join(line.rsplit(cell, 1)) if at else line.replace(cell, SECRET, 1)
                lines[number] = line
                continue
            if how != " " or len(cells) < 2:
                how = ""
        if _MAYBE.search(line.lower()) and len(line) < 400:
            for mark in ("|", "│", ",", ";", " "):
                cells = _cells(line, mark)
                above = lines[number - 1] if number else ""
                if 1 < len(cells) != len(_cells(above, mark)) and all(
                    re.fullmatch(r"[A-Za-z_][\w .-]{0,30}", cell.strip("\"'`")) for cell in cells
                ):
                    secret = [
                        at for at, cell in enumerate(cells) if is_secret_name(cell.strip("\"'`").replace(" ", "_"))
                    ]
                    if secret:
                        how, count = mark, len(cells)
                        break
    return "\n".join(lines)


_TABLE = re.compile(
    rf"(?:^|\n|\\+n|(?<=[\"'`])){_LOGGED.pattern}"
    r"[ \t]*\[+(?:[\w-]+\.)*?([\w-]+)(?:\.([\w-]+))?\]+[ \t]*(?:#[^\n\\]*)?(?P<token>\n|\\+n)"
)


def _tables(text: str) -> str:
    """Take out what a TOML or INI table with a secret's name holds."""
    out, at = [], 0
    for head in _TABLE.finditer(text):
        if head.start() < at or not (is_secret_name(head[1]) or is_secret_name(head[2] or "")):
            continue
        end = head.end()
        while True:
            stop = _line_end(text, end, head["token"])
            logged = _LOGGED.match(text, end, stop)
            end = logged.end() if logged else end
            line = text[end:stop]
            value = re.match(r"\s*(?:[^\s=\[\]#]+|\\*[\"'][^\n=]*\\*[\"'])\s*=\s*", line)
            if not value and not re.fullmatch(r"\s*(?:#.*)?", line):
                break
            if value and line[value.end() :].strip():
                run = _RUN.match(line, value.end())
                around = _tokens(run[0])[0] if run else ""
                if not _harmless(line[value.end() :].strip().strip("\"'\\"), head[1]):
                    out += [text[at : end + value.end()], around + SECRET + around]
                    at = stop
            if not text.startswith(head["token"], stop):
                break
            end = stop + len(head["token"])
    return "".join((*out, text[at:]))


_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)"
    r"|(?:[A-Za-z0-9+/=]{16,}(?:\s|\\+n)+)+-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"|PuTTY-User-Key-File-.*?Private-MAC: \w+",
    re.DOTALL,
)
_SCHEME = re.compile(r"\b(bearer|basic)((?:\s|%20|\+)+)([A-Za-z0-9._~+/=-]{6,})", re.IGNORECASE)
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*:(?:\\*/){2})([^\s\"<>`]+)", re.IGNORECASE)
_BARE_LOGIN = re.compile(
    r"(?<![\w/.@:-])([A-Za-z][\w.-]*):([^\s:@/\"']{4,})@(?=(?!sha\d)[A-Za-z][\w-]*(?:\.[A-Za-z][\w.-]*|:\d+|\b/))"
)
_LOGIN = re.compile(
    rf"((?<![\w-])(?:-[uU]|--(?:proxy-)?user|--(?:basic-)?auth|--creds)(?:{_QUOTE}?(?:{_SPACE}|,|=)+(?:- +)?)?)"
    rf"({_QUOTE}*)"
    r"([^\s:\"'`/\\,=]+:)(?=[^\s/])"
)
_COMMANDS = re.compile(
    r"(\bsshpass\s+-p\s*[\"']?|\bmysql\w*\b[^\n|;]{0,120}?\s-p(?=\S)[\"']?|\blogin\b[^\n|;]{0,120}?\s-p[\s=]+[\"']?"
    r"|\bpass(?:in|out)?\s+pass:|\becho\s+(?:-n\s+)?[\"']?(?=[^\n|]*\|[^\n]*(?:password-stdin|with-token|sudo\s+-S|\blogin\b|chpasswd)))"
    r"([^\s\"']+)"
)
_PGPASS = re.compile(r"(?m)^((?:[A-Za-z*][\w.-]*|\d+(?:\.\d+){3}):(?:\d{2,5}|\*):[\w.*-]+:[\w.*-]+:)(\S+)$")
# The forms that makers gave their keys.
_FORMS = re.compile(
    r"\b(?:"
    + "|".join(
        (
            r"hf_[A-Za-z0-9]{8,}",
            r"api_org_[A-Za-z0-9]{20,}",
            r"sk-[A-Za-z0-9_-]{8,}",
            r"[srp]k_(?:live|test|prod)_[A-Za-z0-9]{8,}",
            r"gh[pousr]_[A-Za-z0-9]{16,}",
            r"github_pat_\w{16,}",
            r"gl(?:pat|ptt|dt|rt|cbt|soat|agent|oas|imt|ft)-[\w.-]{12,}",
            r"xox[a-z](?:-[\w-]{8,}|\.[\w-]{8,})",
            r"xapp-[\w-]{8,}",
            r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA|LTAI)[0-9A-Za-z]{12,}",
            r"eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)*",
            r"npm_[A-Za-z0-9]{20,}",
            r"pypi-[\w-]{16,}",
            r"AIza[\w-]{20,}",
            r"ya29\.[\w-]{16,}",
            r"GOCSPX-[\w-]{16,}",
            r"dckr_(?:pat|oat)_[\w-]{16,}",
            r"do[opr]_v1_[0-9a-f]{16,}",
            r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{16,}",
            r"SG\.[\w-]{10,}\.[\w-]{10,}",
            r"whsec_[\w+/=-]{16,}",
            r"AGE-SECRET-KEY-1[0-9A-Z]{20,}",
            r"hv[sbr]\.[\w-]{16,}",
            r"tskey-[\w-]{10,}",
            r"nvapi-[\w-]{16,}",
            r"gsk_[A-Za-z0-9]{16,}",
            r"xai-[A-Za-z0-9]{16,}",
            r"r8_[A-Za-z0-9]{16,}",
            r"tgp_v1_[\w-]{16,}",
            r"pplx-[A-Za-z0-9]{16,}",
            r"fw_[A-Za-z0-9]{20,}",
            r"ATATT3[\w=-]{16,}",
            r"ATCTT3[\w=-]{16,}",
            r"lin_(?:api|oauth)_[A-Za-z0-9]{16,}",
            r"sntry[su]_[\w+/=-]{16,}",
            r"gl(?:sa|c)_[\w=]{16,}",
            r"dapi[0-9a-f]{30,}",
            r"sq0(?:atp|csp)-[\w-]{16,}",
            r"key-[0-9a-f]{32}\b",
            r"NRAK-[A-Z0-9]{16,}",
            r"PMAK-[0-9a-f-]{16,}",
            r"fig[dopr]_[\w-]{16,}",
            r"ntn_[A-Za-z0-9]{16,}",
            r"ops_eyJ[\w+/=-]{16,}",
            r"dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9.]{16,}",
            r"pul-[0-9a-f]{30,}",
            r"rubygems_[0-9a-f]{30,}",
            r"PRIVATE-TOKEN\s+\S+",
            r"tok_[A-Za-z0-9]{20,}",
            r"(?:bot)?\d{8,10}:AA[\w-]{30,}",
            r"[MNO][A-Za-z\d]{22,27}\.[\w-]{6}\.[\w-]{25,}",
            r"(?:SK|AC)[0-9a-f]{32}\b",
            r"b70-[A-Za-z0-9_-]{43}(?![\w-])",
        )
    )
    + ")|"
    + "|".join(
        (
            r"(?<=hooks\.slack\.com/services/)[\w/]+",
            r"(?<=/api/webhooks/)\d+/[\w-]+",
            r"\$(?:1|2[abxy]|5|6|7|y|gy|apr1|argon2\w*|pbkdf2[\w-]*)\$[^\s:\"']{10,}",
        )
    )
)
_ENTITY = r"&(?:amp;)*(?:quot|apos|#\d+|#x[0-9a-fA-F]+);"
_ENTITIES = re.compile(rf"^[^\n]*{_ENTITY}(?:.*{_ENTITY})?[^\n]*", re.DOTALL | re.MULTILINE)
_FOLDED = re.compile(r"^(?:[^\n]*\\\n)+[^\n]*", re.MULTILINE)
_FOLD = re.compile(r"\\\n[ \t]*(?:\\(?= ))?")
_PERCENT = re.compile(r"(?<![^\s\"'`<>])[^\s\"'`<>]*%(?:20|22|27|3[aAdDfF]|40|0[0aAdD])[^\s\"'`<>]*")
_HOME = re.compile(r"(/(?:home|Users)/)([^/\s\"':;,<>]+)")
_SERIAL = re.compile(r"((?:serial(?: number)?|asset tag|service tag)\s*:\s*)(\S[^\r\n]*)", re.IGNORECASE)


def _url(match: re.Match[str]) -> str:
    """Return an address without what stands before its `@`. A password may hold `@` and `/`."""
    rest = match[2]
    for mark in ("'", ","):  # ends an address, unless what follows still belongs to the login
        cut = re.search(rf"{mark}(?![^{mark}]*@[\w.-]+(?::\d+)?(?:/|$))", rest)
        rest = rest[: cut.start()] if cut else rest
    tail = match[2][len(rest) :]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, colon, word = authority.partition(":")
    port = bool(colon) and re.fullmatch(r"\d{1,5}", word) is not None
    if "@" in rest and colon and not port and "\\" not in user:
        found = list(re.finditer(r"@(?=[\w\[][\w.:\]-]*(?:[/?#\\]|$))", rest))
        if found:
            return f"{match[1]}{SECRET}:{SECRET}{rest[found[-1].start() :]}{tail}"
    if "@" in authority:
        login, _at, _host = authority.rpartition("@")
        if login not in ORDINARY and login != f"{SECRET}:{SECRET}":
            return f"{match[1]}{SECRET}{rest[len(login) :]}{tail}"
    return match[0]


def _scheme(match: re.Match[str]) -> str:
    word = match[3]
    known = word.lower().rstrip(".") in (
        "authentication",
        "authorization",
        "realm",
        "header",
        "headers",
        "scheme",
        "tokens",
        "access",
        "string",
    )
    if (
        known
        or word.startswith("token")
        or (match[1].lower() == "basic" and not (_credential(word) or random_looking(word)))
    ):
        return match[0]
    return f"{match[1]}{match[2]}{SECRET}"


def _unfolded(text: str) -> str:
    """Return a text without the line ends that YAML and shells put into the middle of a line."""
    return _FOLD.sub("", text)


def _form(match: re.Match[str]) -> str:
    """Keep a form that is made of words, such as hf_overrides."""
    return match[0] if re.fullmatch(r"[a-z]+(?:[-_.][a-z]{1,19})+", match[0]) else SECRET


def _login(text: str) -> str:
    out, at = [], 0
    for found in _LOGIN.finditer(text):
        if found.start() < at:
            continue
        closing = _closing(text, found.end(), found[2]) if found[2] else None
        end = closing.start() if closing else _bare(text, found.end(), False, True)
        value = text[found.end() : end]
        if (
            end > found.end()
            and not re.fullmatch(r"\d+(?::\d+)?", value)
            and value != SECRET
            and not value.startswith("/")
        ):
            out += [text[at : found.end()], SECRET]
            at = end
    return "".join((*out, text[at:]))


def known_secrets(text: str) -> set[str]:
    """Return the values of sensitive names in an environment file, configuration or process environment."""
    found = set()
    for name, span in _Scan(text).spans():
        value = text[span.start : span.end]
        words = [value] if value[:1] not in "[{(" else re.findall(r"[^\s,\[\](){}\"']+", value)
        if is_secret_name(name.lstrip("-")):
            found |= {word.strip("\"'") for word in words}
    for match in _URL.finditer(text):
        login = re.split(r"[/?#]", match[2], maxsplit=1)[0].rpartition("@")[0]
        found.add(login.partition(":")[2] or login)
    return {word for word in found if len(word) >= SHORTEST_KNOWN and not _harmless(word, "password")} - ORDINARY


def _forms_of(secret: str) -> set[str]:
    """Return a secret as it stands in other texts: escaped, coded, in a shell's words."""
    coded = secret.encode("utf-8", "surrogatepass")
    forms = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(json.dumps(secret)[1:-1])[1:-1]}
    forms |= {
        quote(secret, safe="", errors="replace"),
        quote(secret, errors="replace"),
        html.escape(secret),
        shlex.quote(secret)[1:-1],
    }
    forms |= {secret.replace("'", "''"), base64.b64encode(coded).decode(), base64.urlsafe_b64encode(coded).decode()}
    return {form for form in forms if len(form) >= min(len(secret), SHORTEST_KNOWN)}


@dataclass
class Redactor:
    """Knows the secrets of one host. `counts` is the number of redactions of each kind."""

    secrets: frozenset[str] = frozenset()
    people: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    personal: bool = True

    @classmethod
    def of(cls, secrets: Iterable[str], people: Iterable[str]) -> Redactor:
        """Return the redactor of these secrets and of `people`, account names.

        A name of fewer than three letters is redacted only in home paths.
        """
        return cls(frozenset(secrets), tuple(sorted(set(people) - ORDINARY)))

    def __post_init__(self) -> None:
        # The longest first, so that no part of a longer secret remains.
        forms = {form for text in self.secrets if text for form in _forms_of(text)}
        known = sorted((re.escape(form) for form in forms), key=len, reverse=True)
        self._known = re.compile("|".join(known)) if known else None
        names = [re.escape(name) for name in self.people if len(name) > 2]
        self._people = re.compile(rf"(?<![\w.-])(?:{'|'.join(names)})(?![\w-])") if names else None
        self._alias = {name: f"<user{number}>" for number, name in enumerate(self.people, 1)}

    def clean(self, text: str) -> str:
        """Return the text without secrets."""
        text = self._clean(text)
        return self._impersonal(text) if self.personal else text

    def _clean(self, text: str) -> str:
        for coded, plain in ((_FOLDED, _unfolded), (_ENTITIES, html.unescape), (_PERCENT, unquote)):
            text = coded.sub(partial(self._decoded, plain), text)
        if "PRIVATE KEY" in text or "Private-MAC" in text:
            text = self._count("key", *_PEM.subn(SECRET, text))
        if self._known is not None:
            text = self._count("known secret", *self._known.subn(SECRET, text))
        for kind, change in (("value", _columns), ("value", _tables), ("value", self._values), ("value", _login)):
            changed = change(text)
            self.counts[kind] += changed.count(SECRET) - text.count(SECRET) if changed != text else 0
            text = changed
        text = self._count("value", *_COMMANDS.subn(rf"\1{SECRET}", text))
        text = self._count("value", *_PGPASS.subn(rf"\1{SECRET}", text))
        if "@" in text:
            text = self._told("address", _URL, _url, text)
            text = self._count("address", *_BARE_LOGIN.subn(rf"{SECRET}:{SECRET}@", text))
        text = self._told("header", _SCHEME, _scheme, text)
        text = self._told("form", _FORMS, _form, text)
        self.counts = Counter({kind: number for kind, number in self.counts.items() if number > 0})
        return text

    def _values(self, text: str) -> str:
        out, at = [], 0
        for _name, span in _Scan(text).spans():
            out += [text[at : span.start], span.before, SECRET, span.after]
            at = span.end
        return "".join((*out, text[at:]))

    def _decoded(self, decode: Callable[[str], str], coded: re.Match[str]) -> str:
        """Return a text, coded once more, without its secrets; unchanged where it has none."""
        plain = decode(coded[0])
        cleaned = plain if plain == coded[0] else self._clean(plain)
        return coded[0] if cleaned == plain else cleaned

    def _impersonal(self, text: str) -> str:
        text = self._count("serial number", *_SERIAL.subn(rf"\1{SECRET}", text))
        text = _HOME.sub(self._home, text)
        return text if self._people is None else self._people.sub(self._person, text)

    def _told(self, kind: str, pattern: re.Pattern[str], how: Callable[[re.Match[str]], str], text: str) -> str:
        changed = pattern.sub(how, text)
        return self._count(kind, changed, changed.count(SECRET) - text.count(SECRET))

    def _count(self, kind: str, text: str, number: int) -> str:
        if number > 0:
            self.counts[kind] += number
        return text

    def _home(self, match: re.Match[str]) -> str:
        if match[2].startswith("<"):
            return match[0]
        self.counts["home"] += 1
        return match[1] + self._alias.setdefault(match[2], f"<user{len(self._alias) + 1}>")

    def _person(self, match: re.Match[str]) -> str:
        self.counts["user"] += 1
        return self._alias[match[0]]


def clean(text: str, known: Iterable[str] = ()) -> str:
    """Return the text without secrets; names of people and paths stay."""
    return Redactor(frozenset(known), personal=False).clean(text)
