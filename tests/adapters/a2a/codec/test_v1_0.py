"""Codec of 1.0, and decoding that all dialects share."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.a2a.codec import v0_3, v0_3_rest
from babelgate.adapters.a2a.codec.dialect import Dialect, decode_message
from babelgate.adapters.a2a.codec.v1_0 import Codec
from babelgate.adapters.a2a.wire import v0_3 as w03
from babelgate.adapters.a2a.wire import v1_0 as w
from babelgate.adapters.a2a.wire.requests import Push
from babelgate.adapters.a2a.wire.task import Status, TaskSnapshot
from babelgate.adapters.kit.json import validate
from babelgate.canonical import DataPart, FaultCode, FaultError, Feature, FilePart, Message, TaskState
from tests.adapters.a2a.schema import Form, check
from tests.examples import examples
from tests.strategies import json_objects, json_values, messages, texts

CODEC = Codec("https://gateway.example.com", "echo")

CARRIED = frozenset({Feature.TEXT, Feature.DATA, Feature.FILE_URL, Feature.METADATA})
FORMS: list[tuple[type[Dialect], Any, Form, Any]] = [
    (Codec, w.Message, "1.0", "any"),
    (v0_3.Codec, w03.Message, "0.3", "object"),
    (v0_3_rest.Codec, w03.Message, "0.3-rest", "wrapped"),
]
each_form = pytest.mark.parametrize(("dialect", "wire", "form", "data"), FORMS, ids=["1.0", "0.3", "0.3-rest"])


def message(**more: Any) -> dict[str, Any]:
    return {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], **more}


def part(wire: Any) -> Any:
    return CODEC.decode_send({"message": message(parts=[wire])}).message.parts[0]


def rejection_of(params: Any) -> str:
    with pytest.raises(FaultError) as error:
        CODEC.decode_send(params)
    assert error.value.fault.code is FaultCode.INVALID
    return error.value.fault.message


@each_form
@given(original=messages(CARRIED))
def test_message_survives_a_round_trip(
    dialect: type[Dialect], wire: Any, form: Form, data: Any, original: Message
) -> None:
    encoded = check("message", form, dialect("http://g", "echo").encode_message(original, "c", "t"))
    decoded = decode_message(validate(wire, encoded), data)
    assert (decoded.parts, decoded.role, decoded.metadata) == (original.parts, original.role, original.metadata)
    assert decoded.extra == {"a2a": {"messageId": original.message_id}}


@each_form
@given(values=st.lists(json_values(), min_size=1, max_size=3))
def test_data_of_any_json_type_survives_a_round_trip(
    dialect: type[Dialect], wire: Any, form: Form, data: Any, values: list[Any]
) -> None:
    original = Message(message_id="m", parts=tuple(DataPart(data=value) for value in values))
    encoded = check("message", form, dialect("http://g", "echo").encode_message(original, "c", "t"))
    decoded = decode_message(validate(wire, encoded), data)
    assert repr([each.data for each in decoded.parts if isinstance(each, DataPart)]) == repr(values)


@given(st.binary(max_size=50), st.none() | texts(min_size=1))
def test_file_bytes_and_name_survive_a_round_trip(data: bytes, name: str | None) -> None:
    file = FilePart(name=name, media_type="image/png", inline=data, size=len(data))
    assert part(CODEC.encode_part(file)) == file
    assert part(CODEC.encode_part(file)).inline == data


def test_large_file_is_a_url_of_the_gateway() -> None:
    encoded = CODEC.encode_part(FilePart(name="big", blob="ab" * 32, size=10**9))
    assert encoded == {"url": f"https://gateway.example.com/a2a/echo/files/{'ab' * 32}", "filename": "big"}


def test_media_type_and_metadata_stay_on_text_and_data_parts() -> None:
    for wire in ({"text": "x"}, {"data": 1}):
        wire_part = {**wire, "mediaType": "text/x", "metadata": {"a": 1}}
        assert CODEC.encode_parts([part(wire_part)]) == [wire_part]


def test_unknown_fields_of_messages_and_parts_survive() -> None:
    wire = message(parts=[{"text": "x", "novel": [1]}], newField={"a": None}, extensions=["urn:x"])
    decoded = CODEC.decode_send({"message": wire}).message
    encoded = CODEC.encode_message(decoded, "c", "t")
    assert encoded == {**wire, "contextId": "c", "taskId": "t"}


def test_base64_may_be_url_safe_and_without_padding() -> None:
    data = bytes(range(250, 256)) + b"x"
    plain = b64encode(data).decode()
    for encoded in (plain, plain.rstrip("="), plain.replace("+", "-").replace("/", "_")):
        assert part({"raw": encoded}).inline == data
    assert "base64" in rejection_of({"message": message(parts=[{"raw": "*"}])})
    assert "base64" in rejection_of({"message": message(parts=[{"raw": "abcde"}])})


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"foo": 1},
        {"text": "a", "data": 1},
        {"text": "a", "raw": ""},
        {"text": None},
        {"file": {}},
        {"file": {"bytes": "", "uri": "http://x"}},
        {"url": ""},
        {"kind": "file", "text": "a"},
        {"kind": "text", "data": {}},
        {"text": 1},
        {"metadata": {}},
        1,
        None,
    ],
)
def test_part_without_exactly_one_content_is_rejected(wrong: Any) -> None:
    rejection_of({"message": message(parts=[wrong])})


def test_both_forms_of_files_are_accepted() -> None:
    for wire in (
        {"raw": "YQ==", "filename": "f", "mediaType": "text/plain"},
        {"kind": "file", "file": {"bytes": "YQ==", "name": "f", "mimeType": "text/plain"}},
        {"file": {"fileWithBytes": "YQ==", "name": "f", "mimeType": "text/plain"}},
        {"file": {"file_with_bytes": "YQ==", "name": "f", "mime_type": "text/plain"}},
    ):
        assert part(wire) == FilePart(name="f", media_type="text/plain", inline=b"a", size=1)
    for wire in ({"url": "http://x/f"}, {"file": {"uri": "http://x/f"}}, {"file": {"fileWithUri": "http://x/f"}}):
        assert part(wire) == FilePart(url="http://x/f")


def test_names_in_snake_case_are_accepted() -> None:
    snake = {
        "message": {
            "message_id": "m",
            "context_id": "c",
            "task_id": "t",
            "role": "ROLE_USER",
            "parts": [{"text": "x"}],
        },
        "configuration": {
            "return_immediately": True,
            "history_length": 2,
            "accepted_output_modes": ["text/plain"],
            "task_push_notification_config": {"url": "https://x", "id": "p"},
        },
    }
    ask = CODEC.decode_send(snake)
    assert (ask.context_id, ask.task_id, ask.wait, ask.history_length) == ("c", "t", False, 2)
    assert ask.output_modes == ("text/plain",)
    assert ask.push == Push(url="https://x", config_id="p")


def test_role_of_the_tutorials_is_accepted() -> None:
    assert CODEC.decode_send({"message": message(role="user")}).message.role == "user"
    assert "role" in rejection_of({"message": message(role="ROLE_UNSPECIFIED")})


@pytest.mark.parametrize("name", ["messageId", "role", "parts"])
def test_error_names_the_missing_field_of_a_message(name: str) -> None:
    wire = message()
    del wire[name]
    assert name in rejection_of({"message": wire})
    assert name in rejection_of({"message": message(**{name: [] if name == "parts" else ""})}) or name == "role"


def test_send_waits_unless_it_returns_immediately() -> None:
    assert CODEC.decode_send({"message": message()}).wait
    assert CODEC.decode_send({"message": message(), "configuration": {}}).wait
    assert not CODEC.decode_send({"message": message(), "configuration": {"returnImmediately": True}}).wait


def test_invalid_context_id_is_rejected_and_not_replaced() -> None:
    assert CODEC.decode_send({"message": message(contextId="")}).context_id is None
    assert "contextId" in rejection_of({"message": message(contextId="x" * 257)})
    assert "contextId" in rejection_of({"message": message(contextId="a\0b")})


HISTORY = tuple(Message.of(str(n), "user").replace(message_id=str(n)) for n in range(4))
TASK = TaskSnapshot("t", "c", Status(TaskState.WORKING, 0), (), HISTORY, {})


def test_history_length_limits_the_newest_messages() -> None:
    assert [each["messageId"] for each in CODEC.encode_task(TASK, 2)["history"]] == ["2", "3"]
    assert "history" not in CODEC.encode_task(TASK, 0)
    assert len(CODEC.encode_task(TASK, 9)["history"]) == 4
    assert len(CODEC.encode_task(TASK)["history"]) == 4
    assert CODEC.decode_get({"id": "t", "historyLength": 0}).history_length == 0
    with pytest.raises(FaultError):
        CODEC.decode_get({"id": "t", "historyLength": -1})


def test_list_filters_are_decoded_and_checked() -> None:
    ask = CODEC.decode_list(
        {
            "contextId": "c",
            "status": "TASK_STATE_WORKING",
            "pageSize": 3,
            "statusTimestampAfter": "1970-01-01T00:00:01.5Z",
        }
    )
    assert ask.states == {TaskState.WORKING, TaskState.CANCELLING}
    assert (ask.page_size, ask.changed_after, ask.artifacts) == (3, 1_500_000, False)
    assert CODEC.decode_list({"status": "TASK_STATE_UNSPECIFIED"}).states is None
    for wrong in (
        {"pageSize": 0},
        {"pageSize": 101},
        {"status": "working"},
        {"statusTimestampAfter": "yesterday"},
        {"historyLength": -1},
        {"pageSize": "many"},
    ):
        with pytest.raises(FaultError):
            CODEC.decode_list(wrong)


def test_page_always_has_a_token() -> None:
    page = check("page", "1.0", CODEC.encode_page([TASK], CODEC.decode_list({}), "", 1))
    assert page["nextPageToken"] == ""
    assert (page["pageSize"], page["totalSize"]) == (50, 1)


def test_times_are_utc_with_milliseconds() -> None:
    for at, time in ((1_760_000_000_123_999, "2025-10-09T08:53:20.123Z"), (0, "1970-01-01T00:00:00.000Z")):
        task = TaskSnapshot(task_id="t", context_id="c", status=Status(state=TaskState.WORKING, at=at))
        assert CODEC.encode_task(task)["status"]["timestamp"] == time


def test_push_configs_are_flat_with_one_scheme() -> None:
    wire = {
        "id": "p",
        "taskId": "t",
        "url": "https://x",
        "token": "s",
        "authentication": {"scheme": "Bearer", "credentials": "k"},
    }
    assert check("push", "1.0", CODEC.encode_push(CODEC.decode_push(wire))) == wire
    empty = {"tenant": "", "id": "", "taskId": "t", "url": "https://x", "token": "", "authentication": {"scheme": ""}}
    assert CODEC.decode_push(empty) == Push(url="https://x", task_id="t")
    assert CODEC.decode_push({**empty, "authentication": {}}) == Push(url="https://x", task_id="t")
    with pytest.raises(FaultError):
        CODEC.decode_push({"url": "https://x"})


@examples(100)
@given(st.data())
def test_any_json_is_decoded_or_rejected(data: st.DataObject) -> None:
    keys = st.sampled_from(
        ["message", "parts", "configuration", "pushNotificationConfig", "id", "taskId", "url", "text", "data", "file"]
    )
    shaped = st.recursive(json_values(), lambda inner: st.dictionaries(keys, inner) | st.lists(inner), max_leaves=8)
    params = data.draw(st.dictionaries(keys, shaped) | json_objects())
    for codec in (CODEC, v0_3.Codec("http://g", "echo")):
        for decode in (
            *(codec.decode_send, codec.decode_get, codec.decode_task_id, codec.decode_list),
            *(codec.decode_push, codec.decode_push_name, codec.decode_push_list),
        ):
            try:
                decode(params)
            except FaultError as error:
                assert error.fault.code is FaultCode.INVALID
