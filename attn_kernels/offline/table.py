"""Compilation in several processes, and the table of what the kernels need."""

from collections.abc import Iterator
from typing import NamedTuple

from attn_kernels.core.config import Config
from attn_kernels.offline.compile import compile_source
from attn_kernels.offline.processes import ENDED, compile_in_processes, describe_error
from attn_kernels.offline.resources import SHARED_LIMITS, Resources, measure
from attn_kernels.offline.sources import FEATURES, CompileShape, sources


class KernelCase(NamedTuple):
    """One kernel of a config at one shape: one line of the table."""

    config: Config
    kernel: str
    shape: CompileShape

    @property
    def name(self) -> str:
        return f"{self.config}/{self.kernel}"


def attempt(case: KernelCase) -> Resources | str:
    """The Resources of a case's kernel, or why it does not compile."""
    try:
        source = sources(case.config, case.shape)[case.kernel]
        return measure(compile_source(source, case.shape.target))
    except Exception as error:  # compilers raise any exception; the table goes on
        return describe_error(error)


def compile_cases(cases: list[KernelCase], jobs: int) -> Iterator[Resources | str]:
    """The result of ``attempt`` for each case, in order; by ``jobs`` processes, or in this one if 1."""
    if jobs == 1:
        return map(attempt, cases)
    return (result or ENDED for result in compile_in_processes(attempt, cases, jobs))


def _names(features: tuple[str, ...]) -> str:
    return "all" if features == FEATURES else ",".join(features) or "plain"


def print_table(cases: list[KernelCase], results: Iterator[Resources | str]) -> int:
    """Print a line for each case; return how many do not fit or do not compile."""
    features = [_names(case.shape.features) for case in cases]
    widths = [max(map(len, column)) for column in ([case.name for case in cases], features)]
    header = ("variant/kernel", "features")
    wide, narrow = (max(width, len(title)) for width, title in zip(widths, header, strict=True))
    print(f"{header[0]:{wide}}  target  head  {header[1]:{narrow}}  shared bytes  registers  spills  fits")
    misfits = 0
    for case, names, result in zip(cases, features, results, strict=True):
        start = f"{case.name:{wide}}  {case.shape.target:6}  {case.shape.head_size:4}  {names:{narrow}}"
        if isinstance(result, str):
            misfits += 1
            print(f"{start}  {result}", flush=True)
            continue
        fits = result.shared_bytes <= SHARED_LIMITS[case.shape.target]
        misfits += not fits
        registers, spills = ("-" if n is None else n for n in (result.registers, result.spills))
        amounts = f"{result.shared_bytes:12}  {registers:>9}  {spills:>6}"
        print(f"{start}  {amounts}  {'yes' if fits else 'NO'}", flush=True)
    return misfits
