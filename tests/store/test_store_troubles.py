"""Why connections do not go on: also what their jobs ended with before a run began."""

from __future__ import annotations

import pytest
from store_world import Clock

from instep.model import JobKind
from instep.store.store import Store
from instep.store.work.pauses import Trouble
from instep.store.work.runs import Outcomes

FULL = "OSError: [Errno 28] No space left on device"


def lost(store: Store, *, retryable: bool, kind: JobKind = "sync") -> str:
    """How a job ended whose last attempt has failed."""
    store.jobs.enqueue("shop", kind, who="ann", attempts=1)
    job = store.jobs.claim("worker")
    assert job is not None
    return store.jobs.fail(job, FULL, retryable=retryable).status


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["sync", "backfill", "refresh"])
@pytest.mark.parametrize(("retryable", "status"), [(False, "failed"), (True, "dead")])
def test_a_job_that_was_given_up_is_a_trouble(
    any_store: Store, clock: Clock, kind: JobKind, retryable: bool, status: str
) -> None:
    """With all attempts used up as where another one would not help, and until one ends well."""
    assert (any_store.troubles.of(["shop"]), any_store.runs.outcomes(["shop"])) == ({}, {})
    assert lost(any_store, retryable=retryable, kind=kind) == status
    assert any_store.troubles.of(["shop"]) == {"shop": [Trouble("sync", FULL)]}
    at = any_store.runs._db.now()
    assert any_store.runs.outcomes(["shop", "other"]) == {"shop": Outcomes(failed=at)}
    clock.forward(60)
    any_store.jobs.enqueue("shop", "sync", who="ann")
    job = any_store.jobs.claim("worker")
    assert job is not None
    any_store.jobs.finish(job)
    assert any_store.troubles.of(["shop"]) == {}
    assert any_store.runs.outcomes(["shop"]) == {"shop": Outcomes(failed=at)}, "when it was last, whatever came after"


def test_what_died_last_counts_and_other_work_does_not(any_store: Store, clock: Clock) -> None:
    any_store.runs.finish(any_store.runs.claim("shop", "sync"), "done")
    done = any_store.runs._db.now()
    clock.forward(60)
    assert lost(any_store, retryable=True, kind="detect") == "dead"
    assert any_store.troubles.of(["shop"]) == {}
    assert any_store.runs.outcomes(["shop"]) == {"shop": Outcomes(done)}
    assert lost(any_store, retryable=True) == "dead"
    assert any_store.runs.outcomes(["shop"]) == {"shop": Outcomes(done, any_store.runs._db.now())}
    assert any_store.troubles.of(["shop"]) == {"shop": [Trouble("sync", FULL)]}
