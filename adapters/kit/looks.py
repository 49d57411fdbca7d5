"""Losses of the looks at a run: the features that the response to a look does not show whole."""

from collections.abc import Mapping

from babelgate.adapters.kit.adapter import Adapter, Look
from babelgate.canonical import Feature
from babelgate.canonical.thread import Loss, losses_by_feature


def losses_of(adapter: Adapter, look: Look, features: frozenset[Feature]) -> Mapping[str, str]:
    """Return the losses of a look at a run that has used `features`: a description for each feature that the response
    does not show whole, by the feature's name.

    The descriptions come from the same table as the header `Babelgate-Loss`. The header is more exact where a loss
    depends on a value, such as the size of a file.
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
