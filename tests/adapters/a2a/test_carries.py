import pytest

from babelgate.adapters.a2a import adapter
from babelgate.canonical import Feature


@pytest.mark.parametrize("version", adapter.versions)
def test_every_feature_is_declared_and_every_loss_has_a_reason_and_a_source(version: str) -> None:
    carries = adapter.carries[version]
    assert set(carries) == set(Feature)
    for feature, carry in carries.items():
        if carry.level != "full":
            assert carry.how, feature
            assert carry.source, feature
