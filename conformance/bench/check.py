"""Evaluation of the checks of a task on the result of an attempt."""

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from babelgate.conformance.bench.sandbox import (
    Matcher,
    SandboxResult,
    SandboxTimeout,
    run_check,
    run_program,
    safe_path,
)
from babelgate.conformance.bench.task import Check

_MAX_TEXT: Final = 80
"""Maximum length of a text that a title or a reason quotes, in characters. Chosen."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Result of an attempt, as the checks receive it."""

    task: str
    input: str | None
    outputs: Sequence[str]
    """Output of each step, in order."""
    steps: Sequence[Mapping[str, Any]] = ()
    """Steps as JSON objects, unchanged from the responses of the server."""
    error: str | None = None
    """Error message of the agent if it failed; None if it did not."""
    artifacts: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Content of the files that the agent created or changed, by path."""
    uploads: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Content of the files that were uploaded for the agent, by path."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    check: str
    passed: bool
    why: str = ""
    broken: bool = False
    """True if the check itself is invalid, so that the agent is not judged."""


def title_of(check: Check) -> str:
    """Return the name of a check, or a description such as `output contains “Paris”` if it has no name."""
    if check.name:
        return check.name
    match check.subject:
        case "steps":
            count = check.steps
            assert count is not None
            bounds = (("at least", count.at_least), ("at most", count.at_most))
            return "steps " + " and ".join(f"{word} {number}" for word, number in bounds if number is not None)
        case "python":
            return f"check of {check.python}"
        case "code":
            return "check in Python"
        case "program":
            subject = f"python {' '.join(check.program or ())}"
        case "artifact":
            subject = f"{'every ' if check.every else ''}{check.artifact}"
        case "error":
            subject = "error"
        case _:
            subject = "output" if check.output in (None, "last") else f"output ({check.output})"
    predicates = list(_predicates(check))
    if predicates:
        return f"{subject} {' and '.join(predicates)}"
    return "the agent fails" if check.subject == "error" else f"{subject} ends well"


def _predicates(check: Check) -> "list[str]":
    predicates: list[str] = []
    if check.contains:
        predicates.append(f"contains {', '.join(map(_quote, check.contains))}")
    if check.excludes:
        predicates.append(f"has no {', '.join(map(_quote, check.excludes))}")
    if check.equals is not None:
        predicates.append(f"equals {_quote(check.equals)}")
    if check.equals_file is not None:
        predicates.append(f"equals {check.equals_file}")
    if check.regex is not None:
        predicates.append(f"matches /{_short(check.regex)}/")
    if check.json_schema is not None:
        predicates.append("fits its schema")
    if "json_equals" in check.model_fields_set:
        predicates.append(f"is {_short(json.dumps(check.json_equals, ensure_ascii=False))}")
    return predicates


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _quote(text: str) -> str:
    return f"“{_short(' '.join(text.split()))}”"


def mistake_in(check: Check, resources: Mapping[str, bytes]) -> tuple[str, str] | None:
    """Return the key of a check whose value is invalid, and the error: for example an invalid regular expression, or
    code that is no Python. Return None for a valid check. `resources` has the files that checks name."""
    if check.regex is not None:
        try:
            re.compile(check.regex)
        except (re.error, OverflowError, RecursionError) as error:
            return "regex", f"it is no regular expression: {error}"
    if check.json_schema is not None:
        try:
            Draft202012Validator.check_schema(_schema(check, resources))
        except SchemaError as error:
            return "json_schema", f"it is no JSON schema: {error.json_path}: {_short(error.message)}"
        except ValueError as error:
            return "json_schema", f"it is not JSON: {error}"
    for key, source in (("python", resources.get(check.python or "")), ("code", (check.code or "").encode())):
        if source:
            try:
                compile(source, check.python or "check", "exec")
            except (SyntaxError, ValueError) as error:
                return key, f"it is no Python: {error}"
    return None


def _schema(check: Check, resources: Mapping[str, bytes]) -> Any:
    """Return the JSON Schema of a check, read from `resources` if the check names a file. Raises ValueError if the file
    is not JSON."""
    if isinstance(check.json_schema, str):
        return json.loads(resources.get(check.json_schema) or b"{}")
    return check.json_schema


async def judge(check: Check, evidence: Evidence, resources: Mapping[str, bytes], matcher: Matcher) -> CheckVerdict:
    judging = _Judging(check, evidence, resources, matcher)
    try:
        finding = await judging.find()
    except ValueError as error:  # Some patterns and schemas show their error only when they are used.
        finding = SandboxResult(False, f"the check is wrong: {error}", broken=True)
    return CheckVerdict(title_of(check), finding.passed, finding.why, finding.broken)


@dataclass(frozen=True, slots=True)
class _Judging:
    check: Check
    evidence: Evidence
    resources: Mapping[str, bytes]
    matcher: Matcher

    async def find(self) -> SandboxResult:
        check, evidence = self.check, self.evidence
        match check.subject:
            case "steps":
                return self._steps(len(evidence.steps))
            case "error":
                if evidence.error is None:
                    return SandboxResult(False, "the agent did not fail")
                return await self._holds(evidence.error.encode())
            case "artifact":
                return await self._artifact(check.artifact or "")
            case "program":
                return await self._program(check.program or ())
            case "python" | "code":
                return await self._python()
            case _:
                return await self._output()

    def _steps(self, count: int) -> SandboxResult:
        limits = self.check.steps
        assert limits is not None
        if limits.at_least is not None and count < limits.at_least:
            return SandboxResult(False, f"it took {count}")
        if limits.at_most is not None and count > limits.at_most:
            return SandboxResult(False, f"it took {count}")
        return SandboxResult(True)

    async def _output(self) -> SandboxResult:
        outputs, which = self.evidence.outputs, self.check.output
        if which == "all":
            return await self._holds("\n".join(outputs).encode())
        if isinstance(which, int) and which > len(outputs):
            return SandboxResult(False, f"there was no step {which}")
        if not outputs:
            return SandboxResult(False, "there was no step")
        return await self._holds(outputs[which - 1 if isinstance(which, int) else -1].encode())

    async def _artifact(self, pattern: str) -> SandboxResult:
        """Apply the check to the agent's files whose paths match a pattern. A pattern without a slash is also matched
        with the file name alone. One file must pass, or all with `every`."""
        artifacts = self.evidence.artifacts
        fitting = [
            path
            for path in artifacts
            if fnmatch.fnmatchcase(path, pattern)
            or ("/" not in pattern and fnmatch.fnmatchcase(path.rpartition("/")[2], pattern))
        ]
        if not fitting:
            return SandboxResult(False, f"there is no such file; there are {', '.join(artifacts) or 'none'}")
        found = {path: await self._holds(artifacts[path]) for path in fitting}
        if self.check.every:
            wrong = next((path for path in fitting if not found[path].passed), None)
            return SandboxResult(True) if wrong is None else _of(wrong, found[wrong])
        right = next((path for path in fitting if found[path].passed), None)
        return SandboxResult(True) if right is not None else _of(fitting[0], found[fitting[0]])

    async def _program(self, arguments: Sequence[str]) -> SandboxResult:
        first = arguments[0]
        if first != "-m" and safe_path(first) not in {safe_path(each) for each in self._workspace()}:
            return SandboxResult(False, f"there is no file {first}")
        try:
            printed = await run_program(
                arguments, self._workspace(), seconds=self.check.timeout, memory=self.check.memory * 2**20
            )
        except SandboxTimeout as error:
            return SandboxResult(False, str(error))
        if printed.code != 0:
            lines = (printed.stderr.strip() or printed.stdout.strip()).splitlines()
            return SandboxResult(
                False, f"it ended with exit code {printed.code}{': ' + lines[-1][:500] if lines else ''}"
            )
        return await self._holds(printed.stdout.encode())

    async def _python(self) -> SandboxResult:
        check, evidence = self.check, self.evidence
        source = check.code if check.python is None else self.resources[check.python].decode(errors="replace")
        run = {
            "task": evidence.task,
            "input": evidence.input,
            "output": evidence.outputs[-1] if evidence.outputs else "",
            "outputs": list(evidence.outputs),
            "steps": [dict(step) for step in evidence.steps],
            "error": evidence.error,
            "seed": evidence.seed,
            "artifacts": [safe for path in evidence.artifacts if (safe := safe_path(path)) is not None],
        }
        return await run_check(
            source or "",
            check.python or "check",
            run,
            self._workspace(),
            seconds=check.timeout,
            memory=check.memory * 2**20,
        )

    def _workspace(self) -> Mapping[str, bytes]:
        """Return the files, by path, that a program or a Python check finds in its folder.

        The agent's files replace uploads of the same path, and the check's own files (`Check.files`) replace both.
        """
        hidden = {path.rpartition("/")[2]: self.resources[path] for path in self.check.files}
        return {**self.evidence.uploads, **self.evidence.artifacts, **hidden}

    async def _holds(self, data: bytes) -> SandboxResult:
        """Apply all predicates of the check, such as `contains` and `regex`, to `data`, the content of the check's
        subject."""
        check = self.check
        if check.equals_file is not None and data != self.resources[check.equals_file]:
            wanted = self.resources[check.equals_file]
            return SandboxResult(False, f"it is not the same: {_bytes(data)}, and {_bytes(wanted)} is wanted")
        text = data.decode(errors="replace")
        for find in (self._words, self._equals):
            if (why := find(text)) is not None:
                return SandboxResult(False, why)
        try:
            why = await self._pattern(text) or await self._json(text)
        except SandboxTimeout as error:
            return SandboxResult(False, str(error))
        return SandboxResult(why is None, why or "")

    def _fold_case(self, text: str) -> str:
        return text.casefold() if self.check.ignore_case else text

    def _words(self, text: str) -> str | None:
        inside = self._fold_case(text)
        for word in self.check.contains:
            if self._fold_case(word) not in inside:
                return f"{_quote(word)} is not in {_describe_text(text)}"
        for word in self.check.excludes:
            if self._fold_case(word) in inside:
                return f"{_quote(word)} is in {_describe_text(text)}"
        return None

    def _equals(self, text: str) -> str | None:
        wanted = self.check.equals
        if wanted is None or self._fold_case(text.strip()) == self._fold_case(wanted.strip()):
            return None
        return f"it is {_describe_text(text)}"

    async def _pattern(self, text: str) -> str | None:
        if self.check.regex is None:
            return None
        found = await self.matcher.find(self.check.regex, text, ignore_case=self.check.ignore_case)
        return None if found else f"it is {_describe_text(text)}"

    async def _json(self, text: str) -> str | None:
        fields = self.check.model_fields_set
        if self.check.json_schema is None and "json_equals" not in fields:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return f"it is no JSON: {_describe_text(text)}"
        if "json_equals" in fields and not _same(value, self.check.json_equals):
            return f"it is {_describe_text(text)}"
        if self.check.json_schema is not None:
            return await self.matcher.mismatch(_schema(self.check, self.resources), value)
        return None


def _of(path: str, finding: SandboxResult) -> SandboxResult:
    return SandboxResult(finding.passed, f"{path}: {finding.why}", finding.broken)


def _describe_text(text: str) -> str:
    return _quote(text) if text.strip() else "empty"


def _bytes(data: bytes) -> str:
    return f"{len(data)} bytes (sha256 {hashlib.sha256(data).hexdigest()[:12]}…)"


def _same(one: Any, other: Any) -> bool:
    """Return True if two values are equal as JSON, where 1 equals 1.0 but not true."""
    return json.dumps(_plain(one), sort_keys=True) == json.dumps(_plain(other), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}  # type: ignore[misc]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]  # type: ignore[misc]
    return value
