"""Agreement between `CARRIES` and the measurement."""

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
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    async with served(tmp_path_factory.mktemp("fidelity")) as found:
        yield found


async def test_every_protocol_and_feature_is_measured_or_listed() -> None:
    assert len(WAYS) == sum(len(adapter.carries) for adapter in ADAPTERS)
    assert len(EXTENDED) == sum(len(adapter.extended) for adapter in ADAPTERS)
    served = {adapter.name for adapter in ADAPTERS} - {"langchain"}  # clients have the names of its dialects
    assert served - {each.protocol for each in UPSTREAMS} == UNSERVED
    assert PROBES.keys() | UNMEASURED.keys() == set(Feature)
    assert not PROBES.keys() & UNMEASURED.keys()


@pytest.mark.parametrize("feature", PROBES)
@pytest.mark.parametrize("protocol", WAYS)
async def test_each_feature_arrives_as_declared(server: Served, protocol: str, feature: Feature) -> None:
    way = WAYS[protocol]
    level, actual, expected = await measure(server, way, feature)
    assert level == way.declared(feature), f"measured {actual}, expected {expected}"


@pytest.mark.parametrize("feature", PROBES)
@pytest.mark.parametrize("protocol", EXTENDED)
async def test_each_feature_arrives_as_declared_with_the_extension(
    server: Served, protocol: str, feature: Feature
) -> None:
    way = EXTENDED[protocol]
    level, actual, expected = await measure(server, way, feature)
    assert level == way.declared(feature), f"measured {actual}, expected {expected}"


@pytest.mark.parametrize(
    "protocol",
    # A response can be joined again while its run is read, but not after a restart.
    [n for n, way in EXTENDED.items() if way.declared(Feature.REATTACH) == "full" and n != "openai-responses"],
)
@pytest.mark.parametrize("feature", [Feature.TOOL_ACTIVITY, Feature.STEP, Feature.QUESTIONS])
async def test_reattached_runs_are_complete_with_the_extension(server: Served, protocol: str, feature: Feature) -> None:
    client = EXTENDED[protocol].client(server.front.url, feature)
    call = Invocation(
        agent=feature, thread_id="t", task_id="t", run_id=str(uuid4()), input=PROBES[feature].input, opens_thread=True
    )
    events = [event async for event in client.run(call)]
    ids = {name: id for event in events if isinstance(event, UpstreamBound) for name, id in event.ids.items()}
    assert isinstance(client, Reattachable)
    again = [event async for event in client.reattach(replace(call, upstream=ids))]
    extract = PROBES[feature].extract
    assert extract(again) == extract(events) == extract(PROBES[feature].emits)
    await client.aclose()
