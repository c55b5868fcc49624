"""Launches against NVIDIA's own figures: `cuda_kern_exec_sum` of Nsight Systems 2023.4.4."""

import csv
import gzip
import re

import pytest
from real_parts import CORPUS, corpus_reports

import bridge.report

SAID = "cuda_kern_exec_sum.csv.gz"
reports = pytest.mark.parametrize(
    "path",
    [of for of in corpus_reports() if not of.id or (CORPUS / "expected" / of.id / SAID).exists()],
)
PARTS = {"T": "total", "A": "api", "Q": "queue", "K": "kernel"}
FIGURES = {"Avg": "mean", "Med": "median", "Min": "min", "Max": "max"}
ROUNDED = 0.05 + 1e-6  # to one decimal


@reports
def test_figures_are_nvidias(path):
    joined = bridge.report.load(path)
    table = joined.by("launch", kernel_names="demangled")
    keys = table[["pid", "tid", "device", "api", "kernel"]].itertuples(index=False, name=None)
    ours = dict(zip(keys, table.to_dict("records"), strict=True))
    assert len(ours) == len(table)
    with gzip.open(CORPUS / "expected" / path.stem / SAID, "rt") as file:
        theirs = list(csv.DictReader(file))
    assert len(theirs) == len(ours)
    for row in theirs:
        found = ours[_key(row)]
        assert (found["count"], found["queue_count"]) == (int(row["Count"]), int(row["QCount"]))
        for letter, part in PARTS.items():
            for short, figure in FIGURES.items():
                said, value = row[f"{letter}{short}:dur_ns"], found[f"{part}_{figure}_ns"]
                if said:
                    assert value == pytest.approx(float(said), abs=ROUNDED), (part, figure)
                else:  # nothing was queued
                    assert (part, found["queue_count"]) == ("queue", 0)


def _key(row):
    """Return what tells rows apart; theirs says the version of one call, ours of none."""
    api = re.sub(r"_v\d+$", "", row["API Name"])
    return int(row["PID"]), int(row["TID"]), int(row["DevId"]), api, row["Kernel Name"]
