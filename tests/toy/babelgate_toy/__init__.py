"""A small protocol as another package would add it: one text in, one text out.

`GET /toy` lists the agents, `POST /toy/{agent}` with `{"text": …}` runs one and answers with the result, and `GET
/toy/runs/{run_id}` shows the result again. An error is an `oops`.
"""

from collections.abc import Sequence

from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.kit.upstream import Upstream
from babelgate_toy.carries import CARRIES, VERSION
from babelgate_toy.client import Client, discover
from babelgate_toy.server import answer_fault, routes

__all__ = ("adapter", "upstream")


def examples(base_url: str, agent: str) -> Sequence[Example]:
    url = f"{base_url}/toy"
    return (Example("Toy", url, f"""curl -s {url}/{agent} -d '{{"text": "Hello"}}'"""),)


adapter = Adapter(
    name="toy",
    title="Toy",
    versions=(VERSION,),
    prefixes=("/toy",),
    routes=routes,
    encode_fault=answer_fault,
    carries={VERSION: CARRIES},
    examples=examples,
)

upstream = Upstream(
    protocol="toy", title="Toy", discover=discover, client=Client, name_of=lambda info: info.name, own_path="/toy"
)
