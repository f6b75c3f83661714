from cluster.messages.directive import DepthTable
from tests.unit.builders import directive, table
from workers.lease import Lease

FALLBACK = DepthTable(enabled=False)


def test_before_any_directive_the_engines_own_table_holds() -> None:
    lease = Lease(FALLBACK, now=0.0)
    assert lease.table == FALLBACK
    assert lease.applied(1.0).source == "start"
    assert not lease.expire(1000.0)


def test_stale_and_fenced_directives_are_ignored() -> None:
    lease = Lease(FALLBACK, now=0.0)
    assert lease.accept(directive(sequence=5, incarnation=2, depths={1: 3}), now=0.0)
    assert not lease.accept(directive(sequence=5, incarnation=2, depths={1: 1}), now=0.1)
    assert not lease.accept(directive(sequence=4, incarnation=2, depths={1: 1}), now=0.1)
    assert not lease.accept(directive(sequence=99, incarnation=1, depths={1: 1}), now=0.1)
    assert lease.table == table({1: 3})
    assert lease.accept(directive(sequence=1, incarnation=3, depths={1: 1}), now=0.2)
    assert lease.table == table({1: 1})


def test_a_lease_runs_out_once_and_a_newer_directive_takes_over_again() -> None:
    lease = Lease(FALLBACK, now=0.0)
    lease.accept(directive(sequence=1, lease_s=2.0), now=10.0)
    assert not lease.expire(11.9)
    assert lease.expire(12.0)
    assert not lease.expire(12.1)
    assert lease.table == FALLBACK
    applied = lease.applied(13.0)
    assert (applied.source, applied.age_s) == ("fallback", 3.0)
    assert "2 s" in applied.reason
    assert not lease.accept(directive(sequence=1), now=13.0)
    assert lease.accept(directive(sequence=2), now=13.0)
    assert lease.applied(13.0).source == "controller"


def test_a_stale_directive_does_not_renew_the_lease() -> None:
    lease = Lease(FALLBACK, now=0.0)
    lease.accept(directive(sequence=2), now=0.0)
    lease.accept(directive(sequence=1), now=1.9)
    assert lease.expire(2.0)
    assert lease.silent_s(5.0) == 5.0
