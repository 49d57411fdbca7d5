"""Tests of the counts of waiting runs."""

from hypothesis import given
from hypothesis import strategies as st

from babelgate.gateway.storage.waiting import Waiting, WaitingRuns

_ENTRIES = st.lists(
    st.tuples(st.sampled_from("op"), st.sampled_from("rst"), st.sampled_from("ab"), st.none() | st.integers(0, 5))
)


def test_runs_are_counted_by_agent_and_owner() -> None:
    runs = WaitingRuns()
    for owner, run_id, agent in (("o", "1", "a"), ("o", "2", "a"), ("o", "3", "b"), ("p", "1", "a")):
        runs.add(owner, run_id, agent, None, 0)
        runs.add(owner, run_id, agent, None, 0)
    assert runs.count("o", "a", 0) == Waiting(agent=3, owner_at_agent=2, owners=2, owner=3, delayed=0)
    assert runs.count("q", "a", 0) == Waiting(agent=3, owner_at_agent=0, owners=3, owner=0, delayed=0)
    runs.discard("o", "1")
    runs.discard("o", "1")
    assert runs.count("o", "a", 0) == Waiting(agent=2, owner_at_agent=1, owners=2, owner=2, delayed=0)


def test_a_delayed_run_counts_for_its_agent_from_its_start() -> None:
    runs = WaitingRuns()
    runs.add("o", "1", "a", 10, 0)
    runs.add("o", "2", "a", 10, 0)
    runs.discard("o", "2")
    assert runs.count("o", "a", 9) == Waiting(agent=0, owner_at_agent=0, owners=1, owner=0, delayed=1)
    assert runs.count("o", "a", 10) == Waiting(agent=1, owner_at_agent=1, owners=1, owner=1, delayed=0)
    runs.discard("o", "1")
    assert runs.count("o", "a", 10) == Waiting(agent=0, owner_at_agent=0, owners=1, owner=0, delayed=0)


@given(_ENTRIES, st.lists(st.tuples(st.sampled_from("op"), st.sampled_from("rst"))), st.integers(0, 6))
def test_the_counts_match_a_full_count(
    added: list[tuple[str, str, str, int | None]], discarded: list[tuple[str, str]], now: int
) -> None:
    runs, expected_runs = WaitingRuns(), dict[tuple[str, str], tuple[str, int | None]]()
    for owner, run_id, agent, start_after in added:
        runs.add(owner, run_id, agent, start_after, 0)
        expected_runs.setdefault((owner, run_id), (agent, start_after))
    for owner, run_id in discarded:
        runs.discard(owner, run_id)
        expected_runs.pop((owner, run_id), None)
    waits = [
        (owner, agent) for (owner, _), (agent, start) in expected_runs.items() if start is None or start <= max(now, 0)
    ]
    agents_of_owner = [agent for owner, agent in waits if owner == "o"]
    delayed = sum(owner == "o" for owner, _ in expected_runs) - len(agents_of_owner)
    owners = {owner for owner, agent in waits if agent == "a"} | {"o"}
    all_of_agent = sum(agent == "a" for _, agent in waits)
    expected = Waiting(all_of_agent, agents_of_owner.count("a"), len(owners), len(agents_of_owner), delayed)
    assert runs.count("o", "a", now) == expected
