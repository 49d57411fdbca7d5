"""Task files: their content, and the errors for mistakes."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from babelgate.conformance.bench.suite import SHIPPED, SuiteError, load_suite, shipped_suite
from babelgate.conformance.bench.task import task_schema

PUBLISHED = Path(__file__).parents[3] / "conformance" / "bench" / "task.schema.json"

GOOD = """
suite: good
defaults: {category: text, steps: 3}
tasks:
  - name: one
    input: Hello
    checks: [{contains: Hello}]
  - name: two
    category: [files, hard]
    depends_on: one
    files: [{path: in/data.csv, folder: data/}, {name: note.txt, text: ab, repeat: 3}]
    replies: [Ada, {additional_input: {a: 1}}]
    checks:
      - {artifact: "*.csv", equals_file: in/data.csv}
      - {python: judge.py, files: in/data.csv}
"""


def write(folder: Path, text: str, name: str = "tasks.yaml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def problems(source: str) -> tuple[str, ...]:
    with pytest.raises(SuiteError) as caught:
        load_suite(source)
    return caught.value.problems


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "data.csv").write_bytes(b"1,2\n")
    (tmp_path / "judge.py").write_text("def check(run): ...")
    write(tmp_path, GOOD)
    return tmp_path


def test_task_has_its_files_its_replies_and_the_defaults(good: Path) -> None:
    suite = load_suite(str(good / "tasks.yaml"))
    one, two = suite.tasks
    assert (suite.name, one.task.category, one.task.steps) == ("good", ("text",), 3)
    assert (two.task.category, two.task.depends_on) == (("files", "hard"), ("one",))
    assert [(each.path, each.data) for each in two.uploads] == [("data/data.csv", b"1,2\n"), ("note.txt", b"ababab")]
    assert [(reply.input, reply.additional_input) for reply in two.task.replies] == [("Ada", {}), (None, {"a": 1})]
    assert two.resources == {"in/data.csv": b"1,2\n", "judge.py": b"def check(run): ..."}


def test_suite_of_a_folder_contains_all_its_files(good: Path) -> None:
    (good / "more").mkdir()
    write(good / "more", "tasks: [{name: three, checks: [{equals: x}]}]", "last.yml")
    suite = load_suite(str(good))
    assert (suite.name, [each.task.name for each in suite.tasks]) == (good.name, ["three", "one", "two"])


def test_hash_changes_only_with_the_content_of_tasks(good: Path) -> None:
    before = load_suite(str(good))
    write(good, GOOD.replace("category: [files, hard]", "category: easy\n    weight: 2"))
    assert load_suite(str(good)).hash == before.hash
    write(good, GOOD.replace("input: Hello", "input: Goodbye"))
    changed = load_suite(str(good))
    assert changed.hash != before.hash
    assert [a.hash == b.hash for a, b in zip(changed.tasks, before.tasks, strict=True)] == [False, True]
    write(good, GOOD)
    (good / "in" / "data.csv").write_bytes(b"1,3\n")
    assert [a.hash == b.hash for a, b in zip(load_suite(str(good)).tasks, before.tasks, strict=True)] == [True, False]


def test_selected_tasks_include_their_dependencies(good: Path) -> None:
    suite = load_suite(str(good))
    assert [each.task.name for each in suite.only((), ["two"]).tasks] == ["one", "two"]
    assert [each.task.name for each in suite.only(["text"], ()).tasks] == ["one"]
    with pytest.raises(SuiteError, match=r"--category nope: .* it has files, hard, text"):
        suite.only(["nope"], ())


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("tasks:\n  - name: a\n    chekcs: []", 3, "tasks.0.chekcs: there is no such key: did you mean checks?"),
        ("tasks:\n  - name: a\n    chekcs: []", 2, "tasks.0.checks: it is missing"),
        ("tasks:\n  - name: a b\n    checks: [{equals: x}]", 2, "a name is letters, digits"),
        ("tasks:\n  - name: a\n    checks: []", 3, "tasks.0.checks: there must be at least one"),
        ("tasks:\n  - name: a\n    checks:\n    - {artifact: x}", 4, "say what must hold of the artifact"),
        ("tasks:\n  - name: a\n    checks:\n    - {artifact: x, error: true, equals: y}", 4, "looks at one thing"),
        ("tasks:\n  - name: a\n    checks:\n    - {steps: {at_least: 2}, equals: y}", 4, "steps stands alone"),
        ("tasks:\n  - name: a\n    checks:\n    - regex: '('", 4, "it is no regular expression"),
        ("tasks:\n  - name: a\n    checks:\n    - json_schema: {type: strin}", 4, "it is no JSON schema"),
        ("tasks:\n  - name: a\n    checks:\n    - code: 'def check('", 4, "it is no Python"),
        ("tasks:\n  - name: a\n    checks:\n    - python: gone.py", 4, "gone.py cannot be read: No such file"),
        ("tasks:\n  - name: a\n    files:\n    - path: ../x\n    checks: [{equals: x}]", 4, "is outside of the suite"),
        ("tasks:\n  - name: a\n    files:\n    - {text: x}\n    checks: [{equals: x}]", 4, "needs a name:"),
        ("tasks:\n  - name: a\n    timeout: -1\n    checks: [{equals: x}]", 3, "greater than 0"),
        ("defaults: {stepps: 1}\ntasks:\n  - name: a\n    checks: [{equals: x}]", 1, "did you mean steps?"),
        ("tasks:\n  - name: a\n    depends_on: b\n    checks: [{equals: x}]", 2, "depends on b, and there is no"),
        ("name: a\nchecks: []", 1, "a task stands below tasks:"),
        ("- a", 1, "a task file is a mapping"),
        ("tasks:\n  - name: a\n    name: b", 3, "the key name stands twice"),
        ("tasks: [", 1, "it is not YAML"),
        ("", 1, "a task file is a mapping"),
    ],
)
def test_error_for_a_mistake_in_a_task_names_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    source = write(tmp_path, text)
    found = problems(source)
    assert any(each.startswith(f"{source}:{line}: ") and words in each for each in found), found


def test_all_mistakes_of_all_files_are_reported_together(tmp_path: Path) -> None:
    write(tmp_path, "tasks:\n  - name: a\n    checks: [{equals: x}]\n  - name: b", "a.yaml")
    write(tmp_path, "tasks: [{name: c, steps: 0, checks: [{equals: x}]}]", "b.yaml")
    assert len(problems(str(tmp_path))) == 2


def test_circular_dependencies_are_a_mistake(tmp_path: Path) -> None:
    tasks = [{"name": n, "depends_on": [d], "checks": [{"equals": "x"}]} for n, d in ("ab", "bc", "ca")]
    (found,) = problems(write(tmp_path, yaml.safe_dump({"tasks": tasks})))
    assert "in a circle: " in found
    assert "a → b → c → a" in found or "b → c → a → b" in found or "c → a → b → c" in found


def test_two_tasks_cannot_share_a_name(tmp_path: Path) -> None:
    task = "{name: a, checks: [{equals: x}]}"
    (found,) = problems(write(tmp_path, f"tasks:\n- {task}\n- {task}"))
    assert found.endswith("tasks.yaml:2: give one of them another name")


def test_yaml_bomb_is_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (found,) = problems(write(tmp_path, "\n".join(lines)))
    assert "more values in it than anybody would write" in found


def test_error_for_an_unknown_suite_lists_the_available_ones(tmp_path: Path) -> None:
    (found,) = problems(str(tmp_path / "nope"))
    assert "there are files, smoke" in found
    (tmp_path / "empty").mkdir()
    assert "there is no task file in this folder" in problems(str(tmp_path / "empty"))[0]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_suite_matches_the_published_schema(name: str) -> None:
    schema = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(shipped_suite(name).read_text(encoding="utf-8")), schema)
    assert load_suite(name).name == name


def test_published_schema_matches_the_code(accept: bool) -> None:
    text = json.dumps(task_schema(), indent=2) + "\n"
    if accept:
        PUBLISHED.write_text(text, encoding="utf-8")
    assert PUBLISHED.read_text(encoding="utf-8") == text, "run pytest --accept"


def test_published_schema_accepts_the_short_forms(good: Path) -> None:
    jsonschema.validate(yaml.safe_load(GOOD), task_schema())
