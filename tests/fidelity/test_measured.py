"""`CARRIES` says what is measured: no more, and no less."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from uuid import uuid4

import pytest
import pytest_asyncio

from babelgate.adapters import ADAPTERS, UPSTREAMS
from babelgate.canonical import Feature, Invocation, Reattachable
from babelgate.canonical.event import UpstreamBound
from tests.fidelity.measure import EXTENDED, WAYS, Served, measure, served
from tests.fidelity.probe import PROBES, UNMEASURED
from tests.fidelity.unserved import UNSERVED

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def given(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    async with served(tmp_path_factory.mktemp("fidelity")) as found:
        yield found


async def test_every_protocol_and_every_feature_is_measured_or_named() -> None:
    assert len(WAYS) == sum(len(adapter.carries) for adapter in ADAPTERS)
    assert len(EXTENDED) == sum(len(adapter.extended) for adapter in ADAPTERS)
    served = {adapter.name for adapter in ADAPTERS} - {"langchain"}  # whose clients have the names of its dialects
    assert served - {each.protocol for each in UPSTREAMS} == UNSERVED
    assert PROBES.keys() | UNMEASURED.keys() == set(Feature)
    assert not PROBES.keys() & UNMEASURED.keys()


@pytest.mark.parametrize("feature", PROBES)
@pytest.mark.parametrize("protocol", WAYS)
async def test_what_is_declared_is_what_arrives(given: Served, protocol: str, feature: Feature) -> None:
    way = WAYS[protocol]
    level, told, whole = await measure(given, way, feature)
    assert level == way.declared(feature), f"told {told}, whole {whole}"


@pytest.mark.parametrize("feature", PROBES)
@pytest.mark.parametrize("protocol", EXTENDED)
async def test_with_the_extension_what_is_declared_arrives(given: Served, protocol: str, feature: Feature) -> None:
    way = EXTENDED[protocol]
    level, told, whole = await measure(given, way, feature)
    assert level == way.declared(feature), f"told {told}, whole {whole}"


@pytest.mark.parametrize(
    "protocol",
    # A response is come back to while its run is read, and not after a restart.
    [n for n, way in EXTENDED.items() if way.declared(Feature.REATTACH) == "full" and n != "openai-responses"],
)
@pytest.mark.parametrize("feature", [Feature.TOOL_ACTIVITY, Feature.STEP, Feature.QUESTIONS])
async def test_with_the_extension_a_run_that_is_found_again_is_told_whole(
    given: Served, protocol: str, feature: Feature
) -> None:
    client = EXTENDED[protocol].client(given.front.url, feature)
    call = Invocation(
        agent=feature, thread_id="t", task_id="t", run_id=str(uuid4()), input=PROBES[feature].input, opens_thread=True
    )
    events = [event async for event in client.run(call)]
    ids = {name: id for event in events if isinstance(event, UpstreamBound) for name, id in event.ids.items()}
    assert isinstance(client, Reattachable)
    again = [event async for event in client.reattach(replace(call, upstream=ids))]
    told = PROBES[feature].told
    assert told(again) == told(events) == told(PROBES[feature].said)
    await client.aclose()
