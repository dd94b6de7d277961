"""The command line of the fuzz targets."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import sys
import traceback
from pathlib import Path

from fuzz import driver

HANG_S = 60


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; what follows ``--`` is for libFuzzer."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Fuzz one reader, or all.")
    parser.add_argument("target", choices=[*driver.NAMES, "all"])
    parser.add_argument("--seconds", type=float, default=10, help="how long, for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, help="how many inputs at most")
    parser.add_argument("--input", type=Path, help="try this file and nothing else")
    parser.add_argument("--keep", type=Path, default=Path(), help="where inputs are kept")
    parser.add_argument(
        "--atheris", action="store_true", help="run under libFuzzer; its options after --"
    )
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.libfuzzer = arguments[end + 1 :]
    return options


def main(arguments: list[str] | None = None) -> int:
    """Fuzz; 0 when nothing was found, 1 when something was."""
    logging.getLogger().addHandler(logging.NullHandler())
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if options.atheris:
        return _under_atheris(
            options.target, options.keep / f"fuzz-{options.target}", options.libfuzzer
        )
    if options.input is not None:
        print(driver.load(options.target).fuzz_one(options.input.read_bytes()))
        return 0
    names = driver.NAMES if options.target == "all" else (options.target,)
    for name in names:
        if not driver.is_available(name):
            print(f"{name}: the compiled code is not there")
            continue
        faulthandler.dump_traceback_later(options.seconds + HANG_S, exit=True, file=2)
        print(f"{name}: seed {options.seed} …", end=" ", flush=True)
        try:
            report = driver.run(
                name, seed=options.seed, seconds=options.seconds, runs_max=options.runs
            )
        except driver.FaultFoundError as fault:
            path = driver.keep_input(name, fault.data, options.keep)
            traceback.print_exception(fault)
            print(f"FAULT\nrepeat with: python -m fuzz {name} --input {path}")
            return 1
        finally:
            faulthandler.cancel_dump_traceback_later()
        print(
            f"{report.runs:,} inputs, {report.outcomes} outcomes, "
            f"slowest {report.slowest_s * 1000:.1f} ms"
        )
    return 0


def _under_atheris(name: str, folder: Path, arguments: list[str]) -> int:
    try:
        driver.run_atheris(name, folder, arguments)
    except ModuleNotFoundError:
        print("Atheris is not installed; without --atheris the built-in driver runs.")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
