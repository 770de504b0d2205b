"""The scripts of internal/conformance, with both clients and with deliberately wrong ones."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import daemons
import pytest
import suite
from both import KINDS


@pytest.fixture(scope="session")
def serve() -> Path:
    return daemons.build("conformance", "./internal/conformance/serve")


@pytest.fixture(scope="session")
def problems(serve: Path) -> dict[str, dict[str, list[str]]]:
    return {kind: suite.play(serve, kind, suite.names()) for kind in KINDS}


@pytest.mark.parametrize("script", suite.names())
def test_script(script: str, kind: str, problems: dict[str, dict[str, list[str]]]) -> None:
    assert problems[kind][script] == []


@dataclass(frozen=True)
class Mutation:
    """A bug: a text of the client and its replacement."""

    about: str
    file: str
    right: str
    wrong: str
    found_by: str


MUTATIONS = [
    Mutation(
        "repeats calls that are not idempotent",
        "_rules.py",
        "return self.retry\n",
        "return REPEAT\n",
        "delete-cut",
    ),
    Mutation("repeats every failure", "_retry.py", "not verdict.again or ", "", "save-conflict"),
    Mutation(
        "never stops repeating",
        "_retry.py",
        "self._tried >= self._policy.attempts",
        "self._tried >= 99",
        "save-cut-always",
    ),
    Mutation(
        "never repeats a call after a lost answer",
        "_retry.py",
        "return _Verdict(self._unanswered(lost), again=self._may != NEVER)\n\n    def _refused",
        "return _Verdict(self._unanswered(lost))\n\n    def _refused",
        "load-cut",
    ),
    Mutation(
        "gives drafts no ids",
        "_*/thread.py",
        "draft = draft_of(draft).with_id(self._caller.new_id())",
        "draft = draft_of(draft)",
        "save-cut-before",
    ),
    Mutation(
        "gives the saves of a batch no ids",
        "_*/client.py",
        "draft_of(draft).with_id(self._caller.new_id())",
        "draft_of(draft)",
        "batch-cut",
    ),
    Mutation(
        "gives the whole save a different id than the edits",
        "_*/thread.py",
        "whole = draft_of(draft).with_id(self._caller.new_id())",
        "whole = draft_of(draft)",
        "session-need-full",
    ),
    Mutation(
        "ignores NEED_FULL",
        "_*/thread.py",
        "except NeedFullError:",
        "except ZeroDivisionError:",
        "session-need-full",
    ),
    Mutation(
        "never sends edits",
        "_session.py",
        "if had is None or ",
        "if True or ",
        "session-need-full",
    ),
    Mutation(
        "ignores Retry-After",
        "_retry.py",
        "return verdict.after + ",
        "return ",
        "save-overloaded",
    ),
    Mutation(
        "forgets a lost answer",
        "_retry.py",
        "self._doubt = self._doubt or ",
        "self._doubt = ",
        "save-cut-then-overloaded",
    ),
    Mutation(
        "is in doubt about reads",
        "_retry.py",
        "if self._may == READ or not sent:",
        "if not sent:",
        "load-cut-always",
    ),
    Mutation(
        "takes a proxy's answer for proof that nothing was done",
        "_retry.py",
        "            return _Verdict(self._unanswered(lost), again=self._may != NEVER)\n"
        '        return _Verdict(UnreachableError(f"{self._where} is not',
        "            return _Verdict(lost, again=self._may != NEVER)\n"
        '        return _Verdict(UnreachableError(f"{self._where} is not',
        "delete-proxy",
    ),
    Mutation(
        "repeats a save although the disk is full",
        "_retry.py",
        "again = again and not isinstance(error, NoSpaceError)",
        "pass",
        "save-no-space",
    ),
    Mutation(
        "does not repeat an ambiguous save",
        "_retry.py",
        "isinstance(error, UnavailableError | AmbiguousError)",
        "isinstance(error, UnavailableError)",
        "save-ambiguous",
    ),
    Mutation(
        "loses the cursor of a watch",
        "_*/watch.py",
        "request.cursor = m.cursor",
        "pass",
        "watch-cut",
    ),
    Mutation(
        "yields an event twice", "_*/watch.py", "if seen.first(event):", "if True:", "watch-cut"
    ),
    Mutation(
        "lets the daemon end a watch",
        "_*/calls.py",
        "if message is None and self._endless:",
        "if False:",
        "watch-ended",
    ),
    Mutation(
        "restarts a list from the beginning",
        "_*/calls.py",
        "ask(max(left, 0), token)",
        'ask(max(left, 0), "")',
        "list-cut",
    ),
    Mutation(
        "accepts half a message",
        "_connect.py",
        "if len(self._buffer) < _HEAD.size + size:",
        "if len(self._buffer) < _HEAD.size + 2:",
        "watch-cut-in-event",
    ),
]


@pytest.mark.parametrize(
    ("number", "m"), list(enumerate(MUTATIONS)), ids=lambda v: getattr(v, "about", "")
)
def test_mutation_is_found(number: int, m: Mutation, serve: Path, tmp_path: Path) -> None:
    """Both clients share the core, so each mutation runs with one of them, in turn."""
    source = tmp_path / "src"
    shutil.copytree(suite.SOURCE, source)
    files = sorted((source / "ckptd").glob(m.file))
    assert len(files) == (2 if "*" in m.file else 1)
    for file in files:
        text = file.read_text()
        assert text.count(m.right) == 1, f"{file.name} has it {text.count(m.right)} times"
        file.write_text(text.replace(m.right, m.wrong))
    assert suite.play(serve, KINDS[number % 2], [m.found_by], source)[m.found_by]
