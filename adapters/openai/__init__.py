"""OpenAI's chat completions and Responses API, as every compatible server speaks them: models as agents."""

from adapters._upstream import Upstream
from adapters.openai.agents import upstream_name
from adapters.openai.carries import CARRIES, VERSION
from adapters.openai.client import Client, discover

__all__ = ("CARRIES", "VERSION", "Client", "discover", "upstream", "upstream_name")

upstream = Upstream(
    protocol="openai",
    title="OpenAI",
    discover=discover,
    client=Client,
    name_of=upstream_name,
    options={"api": ("chat", "responses")},
)
