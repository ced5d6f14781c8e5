# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots: specifications, contrast of colors, and labeled, self-contained pictures."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies

from ansible_collections.muster.training.plugins.plugin_utils._record.reader import read_record
from ansible_collections.muster.training.plugins.plugin_utils._report import plots
from ansible_collections.muster.training.plugins.plugin_utils._report import svg as pictures
from ansible_collections.muster.training.plugins.plugin_utils._report.downsample import buckets
from ansible_collections.muster.training.plugins.plugin_utils._report.page import TEMPLATES
from ansible_collections.muster.training.plugins.plugin_utils._report.report import all_gpus, compose_report
from tests.unit.plugins.plugin_utils.report.records import HOSTILE, START, Page, Sample, write_events, write_record


def gpu_plots_of(directory: Path) -> dict[str, plots.Plot]:
    record = read_record(directory, directory.name)
    return {plot.name: plot for plot in plots.gpu_plots(compose_report(record, START), all_gpus(record))}


def series_of(spec: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    result: dict[str, list[dict[str, Any]]] = {}
    for value in spec["data"]["values"]:
        result.setdefault(value["series"], []).append(value)
    return result


@given(
    strategies.lists(strategies.tuples(strategies.floats(0, 100), strategies.floats(-1e6, 1e6)), max_size=200),
    strategies.integers(1, 50),
)
def test_buckets_preserve_minimum_and_maximum(points: list[tuple[float, float]], count: int) -> None:
    result = buckets(points, 0.0, 100.0, count)
    assert len(result) <= count
    assert sum(part.value_count for part in result) == len(points)
    values = [value for _x, value in points]
    assert min((part.least for part in result), default=None) == min(values, default=None)
    assert max((part.most for part in result), default=None) == max(values, default=None)
    assert all(part.least <= part.mean + 1e-6 and part.mean <= part.most + 1e-6 for part in result)


def test_steps_of_a_job_may_hardly_differ() -> None:
    parts = buckets([(0.0, 1.0), (5e-324, 3.0)], 0.0, 5e-324, 240)
    assert [(part.value_count, part.least, part.most) for part in parts] == [(2, 1.0, 3.0)]


def test_few_gpus_are_plotted_as_one_line_each(tmp_path: Path) -> None:
    result = gpu_plots_of(write_record(tmp_path, nodes=2, gpus=2, seconds=240))
    assert list(result) == ["gpu-utilization", "gpu-memory", "gpu-power", "gpu-temperature"]
    series = series_of(result["gpu-utilization"].spec)
    assert list(series) == ["gpu0 GPU 0", "gpu0 GPU 1", "gpu1 GPU 0", "gpu1 GPU 1"]
    assert {value["mean"] for value in series["gpu1 GPU 1"]} == {50.0}
    assert [round(value["t"]) for value in series["gpu0 GPU 0"]][:3] == [0, 15, 30]
    assert series_of(result["gpu-memory"].spec)["gpu0 GPU 0"][0]["mean"] == 29.3  # GiB
    assert (
        result["gpu-utilization"].caption
        == "4 GPUs busy for 50 % of the time on average, from 50 % (gpu0 GPU 0) upwards."
    )


def test_a_line_does_not_cross_a_gap(tmp_path: Path) -> None:
    def sample(_node: int, _gpu: int, second: float) -> Sample | None:
        return None if 300 < second < 600 else (50.0, 1.0, 1.0, 1.0)

    result = gpu_plots_of(write_record(tmp_path, seconds=900, sample=sample))
    values = next(iter(series_of(result["gpu-power"].spec).values()))
    assert [value["mean"] for value in values].count(None) == 1


def test_many_gpus_are_plotted_as_a_strip_of_limited_size(tmp_path: Path) -> None:
    def sample(node: int, gpu: int, second: float) -> Sample:
        return ((second * 7 + gpu * 13 + node) % 100, 1.0, 1.0, second % 400)

    result = gpu_plots_of(write_record(tmp_path, nodes=8, gpus=8, seconds=3600, sample=sample))
    spec = result["gpu-utilization"].spec
    cells = spec["data"]["values"]
    assert len({cell["row"] for cell in cells}) == 64
    assert len(cells) <= plots.MAX_CELLS
    assert spec["mark"]["aria"] is False
    assert "layer" not in spec  # a rule on another layer would inherit x and become a fence
    assert list(series_of(result["gpu-memory"].spec)) == ["mean of 64 GPUs", "gpu0 GPU 0, the highest"]
    assert len(result["gpu-utilization"].rows) == 64
    equal = gpu_plots_of(write_record(tmp_path, "equal", nodes=3, gpus=4))["gpu-utilization"].spec["data"]["values"]
    assert len(equal) == 12  # equal neighbors are one cell


def expressions(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("expr", "signal", "calculate", "filter", "transform", "url", "href", "datum"):
                yield inner
            yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


def test_job_text_is_data_and_never_a_field_or_expression(tmp_path: Path) -> None:
    directory = write_record(tmp_path)
    write_events(directory / "logs" / "node0" / "events.out.tfevents.1", HOSTILE, [1.0, 2.0])
    (plot,) = plots.curve_plots(compose_report(read_record(directory, "first"), START))
    assert list(expressions(plot.spec)) == []
    assert {item.get("field") for layer in plot.spec["layer"] for item in layer["encoding"].values()} == {
        "step",
        "mean",
    }
    assert set(plot.spec["data"]["values"][0]) == {"step", "mean", "min", "max"}
    assert "<script" not in pictures.draw(plot.spec).inline


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colors_have_enough_contrast_on_light_and_dark_pages() -> None:
    """WCAG 2.1: 4.5 : 1 for text, 3 : 1 for lines in a picture."""
    style = (TEMPLATES / "base.html.j2").read_text()
    light, dark, printed = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    for block in (light, dark, printed):
        result = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", block))
        for arguments in ("ink", "soft", "link", "problem", "good"):
            assert contrast(result[arguments], result["paper"]) >= 4.5, arguments
        assert contrast(result["ink"], result["band"]) >= 4.5
        for color in plots.COLORS:
            assert contrast(color, result["paper"]) >= 3, color
    assert contrast(plots.INK, "#ffffff") >= 4.5
    pairs = {(color, tuple(dash)) for dash in plots.DASHES for color in plots.COLORS}
    assert len(pairs) == plots.MAX_LINES


def test_picture_has_a_label_and_inline_one_has_no_background() -> None:
    spec = plots.base_spec("A & B", 'says "what" it <shows>')
    spec |= {"data": {"values": [{"x": 1}]}, "mark": "point", "encoding": {"x": plots.axis("x", None)}}
    picture = pictures.draw(spec)
    for svg in (picture.svg, picture.inline):
        (attributes,) = Page(svg).elements("svg")
        assert (attributes["role"], attributes["aria-label"]) == ("img", 'says "what" it <shows>')
    assert 'fill="white"' in picture.svg and 'fill="white"' not in picture.inline
    assert "http" not in picture.inline
    assert picture.png.startswith(b"\x89PNG")


def test_missing_vl_convert_error_names_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(pictures.DrawingError, match=re.escape("pip install 'vl-convert-python>=1.9,<2'")):
        pictures.draw({})


def test_specification_with_a_url_is_not_drawn() -> None:
    spec = {**plots.base_spec("x", "x"), "data": {"url": "http://127.0.0.1:9/x.json"}, "mark": "point"}
    with pytest.raises(pictures.DrawingError, match="could not be drawn"):
        pictures.draw(spec)


def test_specifications_are_json(tmp_path: Path) -> None:
    for plot in gpu_plots_of(write_record(tmp_path, nodes=3, gpus=4)).values():
        json.dumps(plot.spec, allow_nan=False)
