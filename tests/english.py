"""Rules of the prose of the source that a machine can check, and a report of what breaks them.

`python -m tests.english PATH...` lists every violation below the paths, one line each; `--count` prints totals by file.
"""

import ast
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


VERBS: Final = words(
    """
    abort accept access acknowledge acquire activate adapt add adjust admit adopt advance advertise aggregate
    align allocate allow announce answer append apply approve archive arrange ask assemble assert assign
    associate attach attempt authenticate authorize await back balance batch begin bind block bound break
    broadcast buffer build bump cache calculate call cancel cap capture carry cast catch chain change charge
    check choose chunk cite claim classify clean clear clip clone close coalesce collapse collect combine commit
    compact compare compile complete compose compress compute concatenate configure confirm connect construct
    consume continue convert copy correct correlate count cover create cut deal declare decline decode
    decompress decorate decrease deduplicate define delay delegate delete deliver demand dequeue derive describe
    deserialize destroy detach detect determine diff digest direct disable discard disconnect discover dispatch
    display distribute divide do download drain draw drive drop dump duplicate echo edit embed emit empty enable
    encode end enforce enqueue ensure enter enumerate erase escape estimate evaluate evict examine exchange
    exclude execute exercise exhaust exit expand expect expire explain export expose express extend extract fail
    feed fetch fill filter finalize find finish fire flatten flush fold follow forbid force fork format forward
    freeze gather generate get give grant group grow guarantee guard guess halt hand handle hash hide hold
    identify ignore implement import include increase index infer inform inherit initialize inject insert
    inspect install instruct intercept interpret interrupt introduce invalidate invoke isolate issue iterate
    join judge keep kill label launch lead learn lease leave lend let limit link list listen load lock log look
    lookup loop lower maintain make manage map mark mask match measure merge migrate mimic mint mirror mock
    modify monitor mount move multiply name narrow negotiate nest normalize note notify number observe obtain
    offer omit open order pack pad page paginate paint parse partition pass patch pause perform persist pick pin
    place plan play poll pool pop populate post postpone predict prefer prefix prepare present preserve prevent
    print probe process produce project promise promote propagate propose prove provide prune publish pull purge
    push put qualify query queue quote raise rank rate reach read rebuild recall receive recognize recompute
    reconcile reconnect reconstruct record recover redact redirect reduce refer refresh refuse register reject
    relay release reload remember remind remove rename render renew reopen reorder repair repeat replace replay
    reply report represent request require reserve reset resolve respond restart restore restrict restructure
    resubscribe resume retrieve retry return reuse reverse revert review rewrite roll rotate round route run
    sample save scale scan schedule score search seed select send separate serialize serve set settle share
    shift shorten show shrink shut sign signal simulate size skip slice sort space split spread stage stamp
    start state step stop store stream strip submit subscribe subtract suggest sum supply support suppress
    suspend swap switch synchronize tag take tear tell terminate test throttle throw tick time touch trace track
    train transfer transform translate transmit traverse treat trigger trim truncate try turn type unpack
    unregister unsubscribe unwrap update upgrade upload use validate verify view visit wait wake walk warn watch
    weigh widen withdraw withhold wrap write yield zip
    """
)
"""Verbs that the docstring of a function may begin with."""

FRAGMENTS: Final = words(
    """
    of by for in on at with without from to as until till since before after above below under over between
    among through during within into onto upon per against about beside besides beyond behind despite it its
    they their them those these this that he she we our ours theirs what who whom whose which where when why how
    whether whatever whoever wherever whichever whenever and or but nor so because if unless though although
    while than then also only not never neither either there here nobody somebody anybody nothing something
    anything everything none ones is are was were be been has have had does did can may must will would shall
    should said told heard asked given made kept taken found known left sent done gone seen begun
    """
)
"""Words that no docstring begins with: it would be a fragment, or would not name its subject."""

BANNED: Final = {
    "whoever": "name the role: the caller, the client, the operator",
    "whatever": "name the thing, or say 'even if'",
    "wherever": "say where",
    "anew": "say 'again'",
    "for ever": "say 'permanently' or 'without a limit'",
    "nobody": "say who does not",
    "somebody": "name the role",
    "told": "say 'sent', 'reported', 'published' or 'passed'",
    "heard": "say 'received'",
    "by chance": "say 'randomly'",
    "at work": "say 'running'",
    "see to": "say 'handle'",
    "sees to": "say 'handles'",
    "let go of": "say 'release'",
    "lets go of": "say 'releases'",
    "in the place of": "say 'instead of'",
    "without a look": "say 'without checking'",
    "beside": "say 'in addition to' or 'next to'",
    "as was asked": "say 'as requested'",
    "is none": "say 'there is no …' or None",
    "are none": "say 'there are no …'",
    "no affair": "say who does not depend on it",
    "what is told": "name it",
    "what is said": "name it",
    "what is asked": "say 'the request' or 'the question'",
    "who asks": "say 'the caller'",
    "is said": "say 'is declared', 'is reported' or 'states'",
    "was said": "say 'was reported' or 'the message'",
    "are told": "say 'receive' or 'are notified'",
    "are said": "say 'are declared'",
    "becomes of": "say 'happens to'",
    "goes on": "say 'continues'",
    "go on": "say 'continue'",
    "of its own": "say 'its own' or 'separate'",
    "of their own": "say 'their own' or 'separate'",
    "once more": "say 'again'",
    "ours": "say 'the gateway's'",
    "theirs": "name the owner",
    "makes of": "say 'converts'",
    "is made of": "say 'is built from'",
    "nothing but": "say 'only'",
    "stands for": "say 'represents'",
    "stands in": "say 'is in'",
    "stand in": "say 'are in'",
    "knows of": "say 'knows'",
    "whose turn": "say which run is next",
}
"""Words and phrases of docstrings and comments, each with what to write instead."""

_ANY_BANNED: Final = re.compile(rf"\b({'|'.join(BANNED)})\b", re.IGNORECASE)
"""Pattern that finds any key of `BANNED`. One search for all is faster than one for each, and few texts match."""

LOCALS: Final = words("told said given asked made heard kept taken own theirs ours gone seen got shown meant known")
"""Names of locals and parameters that say how a value came, and not what it holds."""

_OWNERS: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

WORDS: Final = 35
"""Maximum number of words in a sentence."""
NAME_WORDS: Final = 10
"""Maximum number of words in the name of a test, after `test_`."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a rule is broken."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def violations(path: Path) -> Iterator[Violation]:
    """Yield every violation in one Python file."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    name = path.resolve().relative_to(ROOT)
    nodes = list(ast.walk(tree))
    for line, rule, text in (*in_docstrings(nodes), *in_comments(source), *in_names(nodes)):
        yield Violation(name, line, rule, text)


def in_docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str, str]]:
    """Yield the line, rule and excerpt of every violation in docstrings and field docstrings."""
    for owner in nodes:
        body = owner.body if isinstance(owner, _OWNERS) else []
        for index, statement in enumerate(body):
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                continue
            text = statement.value.value
            if isinstance(text, str):
                is_action = index == 0 and is_imperative(owner)
                for rule in (*opening(text, is_action=is_action), *in_text(text)):
                    yield statement.lineno, rule, excerpt(text)


def is_imperative(owner: ast.AST) -> bool:
    """Return True if the docstring of the owner says what it does: a function, but no property and no fixture."""
    if not isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return not any(re.search(r"property|fixture|\.setter", ast.unparse(each)) for each in owner.decorator_list)


def opening(text: str, *, is_action: bool) -> Iterator[str]:
    """Yield the rule that the first word of a docstring breaks, if any. `is_action` is True for the docstring of a
    function, which must begin with a verb."""
    first = re.match(r"[`'\"]?([\w'-]*)", text.strip())
    word = first[1].lower() if first else ""
    if is_action and word not in VERBS:
        yield "begin with an imperative verb"
    elif word in FRAGMENTS or text.strip().lower().startswith("the same "):
        yield "begin with a noun or a verb, not a fragment"


def in_text(text: str) -> Iterator[str]:
    """Yield the rules that a text breaks: banned words, and sentences that are too long."""
    plain = re.sub(r"`[^`]*`|\"[^\"]*\"", "X", text)
    for phrase, advice in BANNED.items() if _ANY_BANNED.search(plain) else ():
        if re.search(rf"(?<!there )(?<!one )\b{phrase}\b", plain, 0 if phrase.endswith("none") else re.IGNORECASE):
            yield f"'{phrase}': {advice}"
    for paragraph in re.split(r"\n\s*\n|\n\s*[-*|]|:\n", plain):
        for sentence in re.split(r"(?<=[.!?])\s", " ".join(paragraph.split())):
            if len(sentence.split()) > WORDS:
                yield f"a sentence of {len(sentence.split())} words"


def in_page(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, rule and excerpt of every violation in a Markdown page, outside of its code."""
    line = 1
    for is_code, block in blocks(text):
        for paragraph in [] if is_code else re.split(r"(\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\.) ?))", block):
            prose = re.sub(r"\]\([^)]*\)|\*\*[\w-]+\.[\w-]+\*\*", "]", paragraph)  # URLs, ids of requirements
            prose = re.sub(r"(?m)^ {4,}\S.*$|^#+ [a-z-]+$", "", prose)  # code, and headings that are ids
            if prose.lstrip().startswith("|"):  # the cells of a table
                prose = re.sub(r"[|;]", "\n\n", prose)
            for rule in in_text(prose):
                yield line + paragraph[: len(paragraph) - len(paragraph.lstrip())].count("\n"), rule, excerpt(paragraph)
            line += paragraph.count("\n")
        if is_code:
            line += block.count("\n")


def blocks(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a Markdown page in order, and whether each is a fenced code block."""
    for index, block in enumerate(re.split(r"(?m)^(?=[ \t]*```)", text)):
        yield index % 2 == 1, block


def in_comments(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, rule and excerpt of every violation in comments."""
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#: ")
            for rule in in_text(text):
                yield token.start[0], rule, excerpt(text)


def in_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str, str]]:
    """Yield the line, rule and name of every local or parameter that says how its value came, and of unclear tests."""
    for node in nodes:
        match node:
            case ast.arg(arg=name) if name in LOCALS:
                yield node.lineno, "name it by what it holds", name
            case ast.Name(id=name, ctx=ast.Store()) if name in LOCALS:
                yield node.lineno, "name it by what it holds", name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                parts = name.split("_")[1:]
                if len(parts) > NAME_WORDS:
                    yield node.lineno, f"a name of {len(parts)} words", name
                if vague := LOCALS.intersection(parts):
                    yield node.lineno, f"state the behaviour instead of '{min(vague)}'", name
            case _:
                pass


def excerpt(text: str) -> str:
    """Return the first 90 characters of a text, on one line."""
    return " ".join(text.split())[:90]


def sources(paths: Iterable[str]) -> Iterator[Path]:
    """Yield the Python files of the repository at or below the paths."""
    yield from (path for path in files(paths) if path.suffix == ".py")


def files(paths: Iterable[str]) -> Iterator[Path]:
    """Yield the files of the repository that match the paths or patterns."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    yield from (ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file())


def main(arguments: list[str]) -> None:
    """Print the violations in the files below the paths. With `--count`, print the number of violations of each
    file."""
    paths = [each for each in arguments if each != "--count"]
    found = [violation for path in sources(paths) for violation in violations(path)]
    if "--count" in arguments:
        for path, number in Counter(each.path for each in found).most_common():
            print(f"{number:5} {path}")
    else:
        print(*found, sep="\n")
    print(f"{len(found)} violations", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
