"""The agents of `a2a_server_1_0`, with cards that the official SDK signs.

Options: signing = {key: private key in PEM, header: protected header}.
"""

import asyncio

import a2a_server_1_0
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import create_agent_card_signer
from lines import options

make_card = a2a_server_1_0.card


def make_signed_card(name: str, base: str, rpc: str) -> pb.AgentCard:
    signing = options()["signing"]
    return create_agent_card_signer(signing["key"], signing["header"])(make_card(name, base, rpc))


if __name__ == "__main__":
    a2a_server_1_0.card = make_signed_card
    asyncio.run(a2a_server_1_0.main())
