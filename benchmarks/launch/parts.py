"""The parts of a direct ``run``: Triton's launchers, and this package's Python before them."""

from functools import partial

from torch import Tensor

from attn_kernels import Config
from attn_kernels.launch.direct import FilledLaunch, current_device, current_stream, hooked, launch_filled
from attn_kernels.measure.tensors import BatchTensors, launches_of, materialise, plan_for
from benchmarks.launch.bench import LaunchBench

CHOSEN = ("qblock", "segmented", "qblock hopper")


def breakdown(bench: LaunchBench) -> None:
    tensors = materialise(next(iter(bench.named.values())), bench.device)
    for name in CHOSEN:
        if name in bench.configs:
            _break_down(bench, name, tensors, bench.configs[name])


def _break_down(bench: LaunchBench, name: str, tensors: BatchTensors, config: Config) -> None:
    (kv,) = tensors.sets
    plan = plan_for(tensors, config)
    (run,) = launches_of(plan, tensors)
    for _ in range(3):
        run()
    if not plan.launches:
        bench.say(f"run of {name} is not direct")
        return
    ((signature, launches),) = plan.launches.items()
    layer = (kv.out, kv.q, kv.k_cache, kv.v_cache)
    addresses = tuple(tensor.data_ptr() for tensor in layer)
    index = bench.device.index
    parts = {
        "lookup": bench.ns(partial(plan.launches.get, signature)),
        "addresses": bench.ns(lambda: tuple([tensor.data_ptr() for tensor in layer])),
        "hooks": bench.ns(hooked),
        "device": bench.ns(current_device),
        "stream": bench.ns(partial(current_stream, index)),
    }
    triton_us = 0.0
    for number, launch in enumerate(launches):
        call = partial(launch_filled, index, (launch,), addresses, layer)
        parts[f"kernel {number}"] = 1e3 * bench.cpu_us(call)
        triton_us += bench.cpu_us(_launcher_call(launch, index, addresses, layer))
    run_us = bench.cpu_us(run)
    rest = run_us - triton_us
    bench.say(f"run of {name}: {run_us:.1f} us = Triton's launchers {triton_us:.1f} us + ours {rest:.1f} us")
    bench.say("  ns: " + ", ".join(f"{part} {ns:.0f}" for part, ns in parts.items()))


def _launcher_call(
    launch: FilledLaunch, index: int, addresses: tuple[int, ...], layer: tuple[Tensor, ...]
) -> partial[None]:
    """Return the call of Triton's launcher that ``launch_filled`` makes."""
    called: list[partial[None]] = []

    def keep(*arguments: object) -> None:
        called.append(partial(launch.launcher, *arguments))

    launch_filled(index, (launch._replace(launcher=keep),), addresses, layer)
    (call,) = called
    return call
