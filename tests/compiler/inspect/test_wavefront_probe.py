"""The probe for Nsight Compute compiles, and its accesses are what the model takes them for."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest

from kdsl.inspect import access, banks, counts, sass


@pytest.fixture(scope="module")
def probe():
    place = Path(__file__).with_name("wavefront_probe.py")
    spec = importlib.util.spec_from_file_location("wavefront_probe", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_kernel_has_its_one_access(probe, compiler):
    device = probe.program().partition("int main()")[0]
    listing = sass.disassemble(compiler.compile(device, "sm_90a").cubin)
    spaces = ("shared", "global to shared")
    for one in probe.accesses():
        known = counts.counts(listing, one.name).accesses
        touched = [(a.width, number) for a, number in known.items() if a.space in spaces]
        assert touched == [(16 if one.kind.endswith("matrix") else one.width, 1)], one.name


def test_predictions_cover_every_degree(probe):
    found = probe.predictions()
    assert len(found) >= 20
    assert {plain // ideal for plain, _, ideal in found.values()} >= {1, 2, 4, 8, 16, 32}


def test_comparison_reads_what_ncu_writes(probe, tmp_path, capsys):
    rows = ['"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for number, (name, (plain, _, _)) in enumerate(probe.predictions().items()):
        rows += [f'"{number}","{name}(unsigned int *)","{metric}","","{plain}"' for metric in probe.METRICS]
    path = tmp_path / "ncu.csv"
    path.write_text("==PROF== Connected\n" + "\n".join(rows) + "\n")
    assert probe.compare(str(path)) == 0
    assert "| ldmatrix_rows128 | 32 | 32 | 4 | 32 |" in capsys.readouterr().out
    path.write_text("\n".join(rows).replace('"32"', '"31"'))
    assert probe.compare(str(path)) > 0


def test_the_model_against_an_h200(probe):
    """Nsight Compute on an H200, 2026-11-29. Loads of 8 and 16 bytes pair lanes that want the same words."""
    rows = csv.DictReader(Path(__file__).with_name("wavefronts_h200.csv").open(encoding="utf-8"))
    measured = {row["access"]: int(row["wavefronts"]) for row in rows}
    predicted = probe.predictions()
    assert measured.keys() == predicted.keys()
    assert {name: paired for name, (_, paired, _) in predicted.items()} == measured
    assert sum(name.startswith("copy") for name in measured) == 90 and len(measured) == 133


def test_a_model_without_the_source_or_the_way_past_l1_is_seen_to_be_wrong(probe):
    """What the model would say of copies that write as stores do."""
    rows = csv.DictReader(Path(__file__).with_name("wavefronts_h200.csv").open(encoding="utf-8"))
    measured = {row["access"]: int(row["wavefronts"]) for row in rows}
    wrong = set()
    for one in probe.accesses():
        if one.kind == "cp.async":
            plain = banks.wavefronts(access.addresses(one, {}), one.width).count
            wrong |= {one.name} if plain + (4 if one.width != 16 else 0) != measured[one.name] else set()
    assert {"copy16_col_row", "copy4_row_x16", "copy8_row_r32"} <= wrong and "copy4_col_row" not in wrong
