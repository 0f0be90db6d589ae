# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Measures contenders against each other, and refuses to time a wrong answer.

pyperf's own runner starts a process for each benchmark, one after the other, so
on a shared machine a ratio of two of them holds the noise of two moments. Here all
contenders take turns in one process, round by round, and a ratio is the median of
the ratios within the rounds. What fits of pyperf is used: its description of the
machine and its file format, so `python -m pyperf stats|hist|compare_to` work on
build/bench/NAME.pyperf.json, which has every value.

build/bench/NAME.json has what is printed: medians, spreads, ratios, claims.

    python benchmarks/harness.py build/bench/NAME.json...

prints such files as the Markdown tables of docs/benchmarks.md. Knows nothing of
drgn: that is readers.py.
"""

import argparse
import collections
import contextlib
import datetime
import gc
import hashlib
import json
import operator
import os
import random
import shlex
import statistics
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional

try:
    import pyperf
except ImportError:
    sys.exit("the benchmarks need pyperf: pip install 'pyperf>=2'")

CHECKOUT = Path(__file__).resolve().parents[1]
DIRECTORY = CHECKOUT / "build" / "bench"

# The time that this thread had a processor. All contenders are bound by it, with
# files in the page cache and no threads of their own; on an idle machine it is the
# time on the wall, on a shared one that is partly the time of others.
clock = time.thread_time

# A sample lasts at least this long, so that the clock and the call do not count,
# and not much longer, so that a round is one moment.
SAMPLE_SECONDS = 0.003
ROUNDS = (9, 101)


class WrongAnswer(Exception):
    """Contenders do not agree, so their times mean nothing."""


class Contender(NamedTuple):
    name: str
    run: Callable[[int], float]
    """Does the work that many times and returns the seconds it took."""
    answer: Optional[Callable[[], bytes]]
    """All that the work reads. None only for a floor, which reads nothing."""


def repeat(function: Callable[..., Any], *args: Any) -> Callable[[int], float]:
    """Work that is one call."""

    def run(loops: int) -> float:
        start = clock()
        for _ in range(loops):
            function(*args)
        return clock() - start

    return run


def over(function: Callable[..., Any], *iterables: List[Any]) -> Callable[[int], float]:
    """Work that is one call for each argument. The loop is in C, so that nearly
    all of the time is the calls'."""

    def run(loops: int) -> float:
        start = clock()
        for _ in range(loops):
            collections.deque(map(function, *iterables), maxlen=0)
        return clock() - start

    return run


class Spread(NamedTuple):
    low: float
    median: float
    high: float


def spread(values: Iterable[float]) -> Spread:
    """Median and quartiles."""
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


class Result:
    """Seconds an operation of each contender, round by round."""

    def __init__(self, title: str, operations: int, loops: Dict[str, int]) -> None:
        self.title = title
        self.operations = operations
        self.loops = loops
        self.seconds: Dict[str, List[float]] = {name: [] for name in loops}

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, other: str) -> Spread:
        """The time of one as a multiple of another's, within each round."""
        pairs = zip(self.seconds[name], self.seconds[other])
        return spread(a / b for a, b in pairs)


def _first_difference(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def check_answers(title: str, contenders: List[Contender]) -> str:
    """The digest of the answer that all contenders give, else WrongAnswer."""
    answers = {c.name: c.answer() for c in contenders if c.answer is not None}
    if len(answers) < 2:
        raise WrongAnswer(f"{title}: there is nothing to compare")
    (first, expected), *others = answers.items()
    if not expected:
        raise WrongAnswer(f"{title}: {first} reads nothing")
    for name, answer in others:
        if answer != expected:
            raise WrongAnswer(
                f"{title}: {name} ({len(answer)} bytes) and {first} "
                f"({len(expected)} bytes) differ from byte "
                f"{_first_difference(answer, expected)} on"
            )
    return hashlib.sha256(expected).hexdigest()


def _prove_that_a_wrong_answer_is_found() -> None:
    right = Contender("right", repeat(len, ""), lambda: b"\0" * 100 + b"\1")
    wrong = right._replace(name="wrong", answer=lambda: b"\0" * 101)
    try:
        measure("a wrong answer", [right, wrong])
    except WrongAnswer as e:
        if "from byte 100 on" in str(e):
            return
    raise RuntimeError("a wrong answer was timed")


def _calibrate(contender: Contender, sample: float) -> int:
    """The number of loops that take as long as a sample; warms up as well."""
    loops = 1
    while True:
        seconds = contender.run(loops)
        if seconds >= sample / 2:
            return max(1, round(loops * sample / seconds))
        loops *= 2


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # As timeit does: when it happens would depend on what ran before.
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def measure(
    title: str,
    contenders: List[Contender],
    operations: int = 1,
    budget: float = 3.0,
    sample: float = SAMPLE_SECONDS,
) -> Result:
    """Compare the answers, then take the times in rounds of all contenders.

    :param operations: What the work is divided by, for the time of one.
    :param budget: Seconds to spend; the number of rounds follows from it, within
        ROUNDS.
    """
    check_answers(title, contenders)
    with _no_garbage_collection():
        loops = {c.name: _calibrate(c, sample) for c in contenders}
        result = Result(title, operations, loops)
        generator = random.Random(title)
        start = time.perf_counter()
        for c in contenders:
            c.run(loops[c.name])
        rounds = int(budget / (time.perf_counter() - start))
        rounds = min(max(rounds, ROUNDS[0]), ROUNDS[1])
        for _ in range(rounds):
            # What a contender finds in the processor's caches depends on the one
            # before it, so that is each of the others at times.
            for c in generator.sample(contenders, len(contenders)):
                seconds = c.run(loops[c.name])
                result.seconds[c.name].append(seconds / (loops[c.name] * operations))
            gc.collect()
    return result


def duration(seconds: float) -> str:
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        if seconds * scale < 1000:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


OPERATORS = {"<=": operator.le, ">=": operator.ge}


class Suite:
    """What one benchmark script measures and claims."""

    def __init__(self, name: str, packages: Iterable[str] = ()) -> None:
        self.name = name
        self.results: List[Dict[str, Any]] = []
        self.values: List[Dict[str, Any]] = []
        self.claims: List[Dict[str, Any]] = []
        self.notes: List[str] = []
        self._raw: List[Result] = []
        self._start = time.perf_counter()
        _prove_that_a_wrong_answer_is_found()
        self.versions = {package: metadata.version(package) for package in packages}

    def measure(
        self, title: str, contenders: List[Contender], base: str, **kwargs: Any
    ) -> Result:
        """Measure, and print times and ratios to the contender base."""
        result = measure(title, contenders, **kwargs)
        self._raw.append(result)
        rows = []
        for name, seconds in result.seconds.items():
            ratio = result.ratio(name, base)
            rows.append(
                {
                    "contender": name,
                    "seconds": spread(seconds)._asdict(),
                    "loops": result.loops[name],
                    "ratio": ratio._asdict(),
                }
            )
        self.results.append(
            {
                "title": title,
                "base": base,
                "operations": result.operations,
                "rounds": len(result.seconds[base]),
                "rows": rows,
            }
        )
        print("\n".join(_text_table(self.results[-1])), flush=True)
        return result

    def value(self, name: str, value: float, text: str) -> None:
        """Something that was measured and is no time of a contender."""
        self.values.append({"name": name, "value": value, "text": text})
        print(f"{name}: {text}", flush=True)

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(text, flush=True)

    def claim(self, name: str, value: float, limit: float, op: str) -> None:
        held = OPERATORS[op](value, limit)
        self.claims.append(
            {"name": name, "value": value, "op": op, "limit": limit, "held": held}
        )

    def _machine(self) -> Dict[str, Any]:
        everything = pyperf.Run([1.0], collect_metadata=True).get_metadata()
        keep = (
            "cpu_model_name cpu_count cpu_freq platform python_version "
            "python_compiler load_avg_1min runnable_threads"
        ).split()
        return {name: everything[name] for name in keep if name in everything}

    def _write(self) -> Path:
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        path = DIRECTORY / f"{self.name}.json"
        now = datetime.datetime.now(datetime.timezone.utc)
        about = {
            "name": self.name,
            "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command": shlex.join([os.path.basename(sys.executable), *sys.argv]),
            "seconds": round(time.perf_counter() - self._start, 1),
            "machine": self._machine(),
            "versions": self.versions,
            "results": self.results,
            "values": self.values,
            "notes": self.notes,
            "claims": self.claims,
        }
        path.write_text(json.dumps(about, indent=2) + "\n")
        benchmarks = []
        for result in self._raw:
            for name, seconds in result.seconds.items():
                run = pyperf.Run(
                    seconds,
                    metadata={
                        "name": f"{result.title}: {name}",
                        "unit": "second",
                        "loops": result.loops[name],
                        "inner_loops": result.operations,
                        "command": about["command"],
                        **{f"{k}_version": v for k, v in self.versions.items()},
                    },
                    collect_metadata=not benchmarks,
                )
                benchmarks.append(pyperf.Benchmark([run]))
        if benchmarks:
            raw = str(path.with_suffix(".pyperf.json"))
            pyperf.BenchmarkSuite(benchmarks).dump(raw, replace=True)
        return path

    def finish(self) -> int:
        """Write the files, print the claims; the exit status."""
        path = self._write()
        print("\n".join(_claim_lines(self.claims)))
        print(f"{time.perf_counter() - self._start:.0f} s, {path}")
        return 0 if all(claim["held"] for claim in self.claims) else 1


def _claim_lines(claims: List[Dict[str, Any]]) -> Iterator[str]:
    for claim in claims:
        held = "held" if claim["held"] else "NOT HELD"
        yield (
            f"{held:8} {claim['name']}: {claim['value']:.3g} "
            f"{claim['op']} {claim['limit']:g}"
        )


def _cells(row: Dict[str, Any]) -> List[str]:
    seconds, ratio = row["seconds"], row["ratio"]
    return [
        row["contender"],
        duration(seconds["median"]),
        f"{duration(seconds['low'])} to {duration(seconds['high'])}",
        f"{ratio['median']:.3g}",
        f"{ratio['low']:.3g} to {ratio['high']:.3g}",
    ]


HEAD = ["contender", "median", "quartiles", "ratio", "quartiles"]


def _text_table(result: Dict[str, Any]) -> Iterator[str]:
    rows = [HEAD, *map(_cells, result["rows"])]
    widths = [max(map(len, column)) for column in zip(*rows)]
    yield f"{result['title']} ({result['rounds']} rounds; ratio to {result['base']})"
    for name, *cells in rows:
        line = f"  {name:{widths[0]}}"
        for cell, width in zip(cells, widths[1:]):
            line += f"  {cell:>{width}}"
        yield line


def _markdown(about: Dict[str, Any]) -> Iterator[str]:
    machine = about["machine"]
    versions = [f"{name} {version}" for name, version in about["versions"].items()]
    yield f"`{about['command']}`, {about['date']}, {about['seconds']:.0f} s."
    yield (
        f"{machine.get('cpu_count')} x {machine.get('cpu_model_name')}, "
        f"{machine.get('platform')}, Python {machine.get('python_version')}, "
        f"{', '.join(versions)}; load {machine.get('load_avg_1min')} at the end."
    )
    yield "\n| | contender | time | quartiles | ratio | quartiles |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for result in about["results"]:
        title = f"{result['title']} ({result['rounds']} rounds)"
        for row in result["rows"]:
            yield f"| {title} | {' | '.join(_cells(row))} |"
            title = ""
    if about["values"] or about["notes"]:
        yield ""
    for value in about["values"]:
        yield f"* {value['name']}: {value['text']}"
    for note in about["notes"]:
        yield f"* {note}"
    if about["claims"]:
        yield "\n| claim | limit | measured | |"
        yield "| --- | ---: | ---: | --- |"
    for claim in about["claims"]:
        yield (
            f"| {claim['name']} | {claim['op']} {claim['limit']:g} | "
            f"{claim['value']:.3g} | {'held' if claim['held'] else '**not held**'} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Print results as Markdown.")
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args().files:
        print("\n".join(_markdown(json.loads(path.read_text()))) + "\n")


if __name__ == "__main__":
    main()
