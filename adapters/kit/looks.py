"""Looks at a run: the requests by which anybody reads a run in each protocol, and what is lost on the way."""

from collections.abc import Mapping

from babelgate.adapters.kit.adapter import Adapter, Look
from babelgate.canonical import Feature
from babelgate.canonical.thread import Loss, losses_by_feature


def losses_of(adapter: Adapter, look: Look, features: frozenset[Feature]) -> Mapping[str, str]:
    """Return the losses of a run with these features in the response to a look, by feature.

    They come from the same table as the header `Babelgate-Loss`. The header is more exact where a loss depends on a
    value, such as the size of a file.
    """
    carries = adapter.carries[look.version]
    losses: list[Loss] = []
    for feature in sorted(features):
        carry = carries[feature]
        if carry.is_lost(in_stream=look.form != "object"):
            losses.append(Loss(feature=feature.value, how=carry.how))
        elif feature in look.hidden:
            losses.append(Loss(feature=feature.value, how=look.hidden[feature]))
    return losses_by_feature(losses)
