from babelgate.adapters.kit.client.consent import is_yes


def test_only_a_clear_yes_approves() -> None:
    assert all(map(is_yes, (True, "yes", " OK. ", "Approve", {"approved": "y"}, {"type": "approve"})))
    assert not any(map(is_yes, (False, 1, None, "", "yes, but later", "no", {}, {"approved": False}, ["yes"])))
