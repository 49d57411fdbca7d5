"""URI templates of MCP resources: syntax, expansion and recognition, with examples of RFC 6570."""

from typing import Any

import pytest

from babelgate.conformance.protocols.mcp.templates import expand, is_expansion, is_template, is_uri, variables_of

VALUES = {"var": "value", "hello": "Hello World!", "path": "/foo/bar"}


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{var}", "value"),
        ("x://{hello}", "x://Hello%20World%21"),
        ("x://{path}/here", "x://%2Ffoo%2Fbar/here"),
        ("x://{+path}/here", "x:///foo/bar/here"),
        ("x://a{?var,hello}", "x://a"),
        ("x://{var:3}/{var*}", "x://val/value"),
        ("x://plain", "x://plain"),
    ],
)
def test_templates_are_expanded(template: str, uri: str) -> None:
    assert is_template(template)
    assert expand(template, VALUES) == uri


def test_only_simple_and_reserved_variables_are_needed() -> None:
    assert variables_of("x://{a}/{+b}/{a}/{c:2}{?d,e}{#f}") == ["a", "b", "c"]


@pytest.mark.parametrize("text", ["x://{", "x://}", "x://{}", "x://{a b}", "x://a b", "x://{!a}", "x://%zz", 7, None])
def test_broken_templates_are_recognized(text: Any) -> None:
    assert not is_template(text)


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("x://{a}", "x://one", True),
        ("x://{a}", "x://one/two", False),
        ("x://{+a}", "x://one/two", True),
        ("x://{a}/end", "x://one/end", True),
        ("x://{a}{?b}", "x://one?b=2", True),
        ("x://{a}", "y://one", False),
    ],
)
def test_uris_of_a_template_are_recognized(template: str, uri: str, expected: bool) -> None:
    assert is_expansion(template, uri) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("note://one", True), ("urn:a:b", True), ("x://a%20b", True), ("x://a b", False), ("no-scheme", False)],
)
def test_uris_have_a_scheme_and_no_spaces(text: str, expected: bool) -> None:
    assert is_uri(text) is expected
