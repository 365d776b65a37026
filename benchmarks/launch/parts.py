"""What a direct ``run`` is made of: the C functions that launch, and what Python does before them."""

from functools import partial

from attn_kernels import Config
from attn_kernels.launch.direct import current_device, current_stream, hooked
from attn_kernels.launch.ready import Ready, launch_all
from attn_kernels.measure.tensors import BatchTensors, launches_of, materialise, plan_for
from benchmarks.launch.bench import Bench

CHOSEN = ("qblock", "segmented", "qblock hopper")


def breakdown(bench: Bench) -> None:
    tensors = materialise(next(iter(bench.named.values())), bench.device)
    for name in CHOSEN:
        if name in bench.configs:
            _break_down(bench, name, tensors, bench.configs[name])


def _break_down(bench: Bench, name: str, tensors: BatchTensors, config: Config) -> None:
    (kv,) = tensors.sets
    plan = plan_for(tensors, config)
    (run,) = launches_of(plan, tensors)
    for _ in range(3):
        run()
    if not plan.ready:
        bench.say(f"run of {name} is not direct")
        return
    (known,) = plan.ready.values()
    layer = (kv.out, kv.q, kv.k_cache, kv.v_cache)
    addresses = tuple(tensor.data_ptr() for tensor in layer)
    index = bench.device.index
    parts = {
        "same tensors": bench.ns(lambda: known.same(*layer)),
        "addresses": bench.ns(lambda: tuple([tensor.data_ptr() for tensor in layer])),
        "hooks": bench.ns(hooked),
        "device": bench.ns(current_device),
        "stream": bench.ns(partial(current_stream, index)),
    }
    c_us = 0.0
    for number, one in enumerate(known.launches):
        parts[f"kernel {number}"] = 1e3 * bench.cpu_us(partial(launch_all, index, (one,), addresses, layer))
        c_us += bench.cpu_us(_c_function(one, current_stream(index), addresses, layer))
    run_us = bench.cpu_us(run)
    bench.say(f"run of {name}: {run_us:.1f} us = C functions {c_us:.1f} us + Python {run_us - c_us:.1f} us")
    bench.say("  ns: " + ", ".join(f"{part} {ns:.0f}" for part, ns in parts.items()))


def _c_function(
    ready: Ready, stream: int, addresses: tuple[int, ...], layer: tuple[object, ...]
) -> partial[None]:
    """The last call of ``launch_all`` alone."""
    called: list[partial[None]] = []

    def keep(*arguments: object) -> None:
        called.append(partial(ready.form.function, *arguments))

    kept = ready._replace(form=ready.form._replace(function=keep))
    launch_all(current_device(), (kept,), addresses, layer)  # type: ignore[arg-type]
    (call,) = called
    return call
