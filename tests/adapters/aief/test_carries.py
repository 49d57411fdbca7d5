from babelgate.adapters.aief import adapter
from babelgate.canonical import Feature


def test_every_feature_is_carried_or_its_loss_is_declared() -> None:
    for carries in adapter.carries.values():
        assert set(carries) == set(Feature)
        assert all(carry.level == "full" or (carry.how and carry.source) for carry in carries.values())
