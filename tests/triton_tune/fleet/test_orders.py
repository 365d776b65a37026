"""Who gets which visit: cases that a simulated fleet seldom meets."""

from tuning_builders import surface

from triton_tune.core.problem import PlannedVisit
from triton_tune.fleet.orders import Orders, Worker


def test_a_visit_that_was_withdrawn_is_done_once_if_a_copy_of_it_ends() -> None:
    orders = Orders(surface().problem)
    one, other = Worker(0, "a/0"), Worker(1, "b/0")
    orders.join(one)
    orders.join(other)
    task = PlannedVisit("s0", 1, ("c0",))
    orders.begin([task])
    assert orders.next_for(one, 0.0) == task
    orders.handed(other, task, 1.0)
    assert orders.ended(one, task, 1.0, 2.0)
    orders.put(task, first=True)  # as `one` proved too slow
    assert orders.ended(other, task, 1.0, 3.0)
    assert not orders.open and not orders.waiting
    assert orders.next_for(one, 4.0) is None


def test_workers_of_a_host_that_has_compiled_for_a_shape_get_more_of_it() -> None:
    problem = surface().problem
    orders = Orders(problem)
    workers = [Worker(0, "a/0"), Worker(1, "a/1"), Worker(2, "b/0")]
    for worker in workers:
        orders.join(worker)
    by_shape = {problem.shape(s): s for s in problem.scenarios}
    orders.begin([PlannedVisit(s, repeat, ("c0",)) for s in by_shape.values() for repeat in (1, 2, 3)])
    first, same_host, other_host = (orders.next_for(worker, 0.0) for worker in workers)
    assert first is not None and same_host is not None and other_host is not None
    assert first.scenario == same_host.scenario != other_host.scenario
