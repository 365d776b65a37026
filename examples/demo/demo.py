# %% [markdown]
# # From a table to a tree, and to the review of a change
# `treegen` builds a module from times of a matrix product that were measured on an H200
# ([examples/matmul](../matmul)). Then we pretend that a new driver compiles one config worse, and review the
# change. This takes ten seconds and needs no GPU, only `pip install '.[treegen]'` in the repository.

# %%
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.pop("FORCE_COLOR", None)  # Jupyter sets it, as if output went to a terminal
here = Path(globals().get("__file__", "demo.ipynb")).resolve().parent
matmul = here.parent / "matmul"
os.chdir(tempfile.mkdtemp())
shutil.copytree(matmul / "tuning_data", "tuning_data")
shutil.copy(matmul / "treegen.yaml", ".")


def treegen(*arguments: str) -> None:
    """Run a command as a shell does, and show its output."""
    command = [sys.executable, "-m", "treegen", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"$ treegen {' '.join(arguments)}\n{done.stdout}(exit code {done.returncode})")


# %% [markdown]
# ## 1. The table
# Each row holds the times of one shape in microseconds, one column per config. No config is the best for all:

# %%
times = Path("tuning_data/matmul/nvidia_h200/times.csv")
header, *rows = csv.reader(times.read_text().splitlines())
for shape in ("M14_N4096_K4096", "M112_N4096_K4096", "M2048_N4096_K4096"):
    cells = [cell for row in rows if row[0] == shape for cell in zip(row[2:], header[2:], strict=True)]
    time, config = min((float(time), config) for time, config in cells if time)
    print(f"{shape}: {config} is the fastest, {time} us")

# %% [markdown]
# ## 2. The tree
# `held-out` is the time over the best config's on shapes that the fit has not seen, and `groups held-out` on
# models that it has not seen.

# %%
treegen("build")
module = Path("heuristics/matmul/nvidia_h200.py").read_text()
print(module[module.index("STEPS = ") : module.index("def step_of_model")])

# %% [markdown]
# ## 3. A change
# The new driver makes one config 20% slower, and somebody tunes again.

# %%
shutil.copytree(".", "before", ignore=shutil.ignore_patterns("before"))
column = header.index("M64_N256_K64_W8_S4")
for row in rows:
    row[column] = row[column] and f"{1.2 * float(row[column]):.6g}"
times.write_text("".join(f"{','.join(row)}\n" for row in [header, *rows]))
run = times.with_name("run.yaml")
run.write_text(run.read_text().replace("driver: 580.159.04", "driver: 590.44.01"))
treegen("build")

# %% [markdown]
# ## 4. The review
# The diff ([how to read it](../../docs/diff.md)) names the cell that launches another config now and what
# that gains. What the driver costs stands apart, as it is not the change's fault. The report is an HTML page.

# %%
treegen("diff", "before")
treegen("report")
print(Path("report.html").resolve())

# %% tags=["active-ipynb"]
# from html import escape
# from IPython.display import HTML
# page = escape(Path("report.html").read_text())
# HTML(f'<div><iframe width="100%" height="1700" srcdoc="{page}"></iframe></div>')
