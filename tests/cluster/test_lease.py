"""A lease, step by step. `test_claims` has servers that fight under lost and late answers."""

from __future__ import annotations

import pytest

from fastflight.cluster.lease import Create, Lease, Release, Update


def held() -> Lease:
    """A lease of 4 s, less 0.5 s of margin, that was taken at 100 with revision 7."""
    lease = Lease(4.0, 0.5, 1.0)
    assert lease.next(100.0) == Create(1)
    lease.stored(1, 7)
    return lease


def test_nothing_is_held_before_the_entry_is_stored() -> None:
    lease = Lease(4.0, 0.5, 1.0)
    assert lease.next(100.0) == Create(1)
    assert not lease.is_held(100.0)
    lease.stored(1, 7)
    assert lease.is_held(100.0) and lease.revision == 7


def test_it_ends_a_margin_before_the_entry_counted_from_when_it_was_sent() -> None:
    lease = held()
    assert lease.is_held(103.49)
    assert not lease.is_held(103.5)


def test_it_is_renewed_with_its_last_revision() -> None:
    lease = held()
    assert lease.next(100.9) is None
    assert lease.next(101.0) == Update(2, 7)
    assert lease.next(102.5) is None, "one request is under way"
    lease.stored(2, 9)
    assert (lease.revision, lease.term) == (9, 7)
    assert lease.is_held(104.49) and not lease.is_held(104.5)


def test_a_renewal_without_an_answer_does_not_prolong_it() -> None:
    lease = held()
    lease.next(101.0)
    lease.unanswered(2)
    assert lease.next(102.0) == Update(3, 7)
    assert not lease.is_held(103.5)


def test_a_late_answer_counts_from_when_its_request_was_sent() -> None:
    lease = held()
    lease.next(101.0)
    lease.unanswered(2)
    lease.stored(2, 9)
    assert lease.is_held(104.49) and not lease.is_held(104.5)


def test_a_refusal_by_another_server_ends_it_at_once() -> None:
    lease = held()
    lease.next(101.0)
    lease.refused(2)
    assert not lease.is_held(101.0)
    assert lease.next(102.0) == Create(3)
    lease.stored(3, 12)
    assert lease.term == 12


def test_a_refusal_by_an_own_lost_answer_leaves_it_until_its_time_is_up() -> None:
    lease = held()
    lease.next(101.0)
    lease.unanswered(2)
    assert lease.next(102.0) == Update(3, 7)
    lease.refused(3)
    assert lease.is_held(103.0) and lease.next(103.0) is None
    assert lease.next(103.5) == Create(4), "its time is up"


def test_a_lost_answer_that_is_found_in_the_bucket_clears_the_doubt() -> None:
    lease = held()
    lease.next(101.0)
    lease.unanswered(2)
    lease.next(102.0)
    lease.refused(3)
    lease.stored(2, 9)
    assert lease.is_held(104.0)
    assert lease.next(103.0) == Update(4, 9)


def test_a_lease_that_ended_cannot_be_revived_by_a_late_answer() -> None:
    lease = held()
    lease.next(101.0)
    lease.unanswered(2)
    assert lease.next(104.0) == Create(3)
    lease.stored(2, 9)
    assert not lease.is_held(104.0) and lease.revision == 0


def test_old_and_repeated_answers_change_nothing() -> None:
    lease = held()
    lease.next(101.0)
    lease.stored(2, 9)
    lease.stored(1, 7)
    lease.stored(2, 9)
    lease.refused(1)
    assert lease.revision == 9 and lease.is_held(104.0)


def test_releasing_gives_it_up_at_once() -> None:
    lease = held()
    lease.next(101.0)
    assert lease.release() == Release(7)
    assert not lease.is_held(101.0)
    lease.stored(2, 9)
    assert not lease.is_held(101.0), "the answer to a renewal that was under way"
    assert lease.release() is None


@pytest.mark.parametrize("times", [(4.0, 0.0, 1.0), (4.0, 3.0, 1.0), (1.0, 2.0, 0.5), (4.0, 0.5, 0.0)])
def test_times_that_make_no_sense_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="needs"):
        Lease(*times)
