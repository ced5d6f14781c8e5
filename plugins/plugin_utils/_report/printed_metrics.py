# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Curves of the metrics that a job prints, such as "iter 20: loss 4.43", in the formats of common training programs.

Only numbers with the name of a known metric count, and only in lines that look like progress, so that other output
gives no curves. All input may be hostile: each pattern is bounded, and so are lines, metrics and points.
"""

from __future__ import annotations

import itertools
import math
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from ansible_collections.muster.training.plugins.plugin_utils._report.curves import UNKNOWN, CurveSet
from ansible_collections.muster.training.plugins.plugin_utils._report.rich_output import RichOutput
from ansible_collections.muster.training.plugins.plugin_utils._report.trainer_log import TrainerLog
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import ESCAPE

MAX_EPOCHS = 50_000  # number of a metric's epochs whose offsets are kept; a job may print any number as its epoch
MAX_LINE = 2000  # number of characters; longer lines are skipped
MAX_METRICS = 30
MAX_POINTS = 500_000  # total number of points of all metrics
MAX_NUMBERS = 100  # how many numbers in a line are examined
MAX_COLUMNS = 40
KEY_LENGTH = 80  # number of characters before a number that may be its name
MIN_COUNTED = 3  # number of values of a metric without a step or epoch; fewer may be a list of settings
TABLE_REACH = 200  # number of lines after a header or a row within which another row belongs to it


def names(text: str) -> frozenset[str]:
    """Return the space-separated names in a text."""
    return frozenset(text.split())


# Names whose last or first part is one of these are metrics.
METRICS = names("""
    loss losses acc acc1 acc5 accuracy top1 top5 perplexity ppl bleu chrf f1 auc auroc auprc map map50 miou iou dice
    wer cer mse rmse mae mape r2 psnr ssim fid nll bpc bpb bpd elbo reward rew mcc ndcg mrr rouge rouge1 rougel em
    """)
# Names that are metrics only in lines that also have a metric from the list above, or a step or epoch
COMPANIONS = names("""
    lr learning_rate grad_norm gnorm grad_norms mfu throughput samples_per_second samples_per_sec tokens_per_second
    tokens_per_sec precision recall entropy kl score ap ap50
    """)
# Names that are metrics only with exactly this capitalization
AMBIGUOUS = {"map": "mAP", "map50": "mAP", "em": "EM", "ap": "AP", "ap50": "AP", "fid": "FID", "r2": "R2"}
RATES = ("lr", "learning_rate", "learning rate")  # a line that contains only these has no metrics
# Last parts of the names of settings, such as loss_scale, and first parts of others, such as target_accuracy
SETTING_ENDS = names("""
    alpha beta gamma lambda coef coefficient decay dir every factor file fn func function id interval limit margin name
    path patience ratio reduction scale scaling smoothing steps threshold type weight weights
    """)
SETTING_STARTS = names("target min max num use no skip")
# words that precede a loss of another kind
OTHER_LOSSES = names("packet packets data signal frame path weight hearing")
# Words preceding a metric that belong to its name
QUALIFIERS = names("""
    train training val valid validation test testing eval evaluation dev lm mean avg average total running smoothed
    final best learning grad gradient loss box cls dfl mask word character moe mtp z aux
    """)
STATISTICS = names("mean avg average std median total sum epoch step all macro micro weighted")
PHASES = {
    "val": names("val valid validation validate validating eval evaluation evaluate evaluating dev"),
    "test": names("test testing"),
}
HINT = re.compile(
    r"loss|acc|top[15]|perplexity|ppl|bleu|chrf|f1|au(?:c|ro|pr)|map|iou|dice|wer|cer|mse|mae|mape|r2|psnr|ssim|fid|nll"
    r"|bp[cbd]|elbo|rew|mcc|ndcg|mrr|rouge|em\b|epoch|step",
    re.IGNORECASE,
)
NUMBER = re.compile(
    r"(?<![\w.+-])([-+]?(?:[0-9]{1,15}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][-+]?[0-9]{1,3})?|[-+]?(?:nan|NaN|inf|Inf))"
    r"(?!\w|:[0-9]|\.\w)(?:[ ]?/[ ]?([0-9]{1,15})(?![\w./]))?"
)
# A number's name and the separator that follows it, at the end of the text before the number. Not after ? or &, as in a
# URL.
KEY = re.compile(
    r"(?<![\w?&/=.@%-])[\"']?((?:[A-Za-z][\w/-]{0,30} ){0,2}[A-Za-z][\w./@%()-]{0,60}?)[\"']?"
    r"(\s{0,4}[:=]\s{0,12}|\s{1,8}\|\s{1,12}| is |\s{1,8})[\"'\[(]?\Z"
)
STEP = re.compile(
    r"(?<![A-Za-z])(?:global[_ ]?step|total_timesteps|step|iter(?:ation)?|itr|it|num_updates|updates?|batch(?:_idx)?)s?"
    r"[\"']?\s{0,4}[:=#]?\s{0,8}[\"'\[(]?\s{0,8}([0-9]{1,12})(?!\.?[0-9]|\.?[A-Za-z%])(?:\s{0,8}/\s{0,8}([0-9]{1,12}))?",
    re.IGNORECASE,
)
EPOCH = re.compile(
    r"(?<![A-Za-z])(?:epoch|ep)[\"']?\s{0,4}[:=#]?\s{0,8}[\"'\[(]?\s{0,4}([0-9]{1,7}(?:\.[0-9]{1,20})?)"
    r"(?:\s{0,4}/\s{0,4}[0-9]{1,7})?\]?",
    re.IGNORECASE,
)
# A position as shown by a progress bar, such as "[ 100/938" or "| 100/938"
POSITION = re.compile(r"(?:\A|[\[(|:]|\]\s{0,3}\(?)\s{0,8}([0-9]{1,12})\s{0,3}/\s{0,3}([0-9]{1,12})(?![0-9/.])")
# Epoch and batch as printed in PyTorch's tutorial and DeepSpeed's example: "[1,  2000] loss: 2.170"
EPOCH_AND_BATCH = re.compile(r"\s{0,8}\[\s{0,8}([0-9]{1,7}),\s{0,8}([0-9]{1,12})\s{0,3}\]\s{0,3}[A-Za-z]")
EPOCH_HEADING = re.compile(r"\W{0,10}epoch\W{0,4}([0-9]{1,7})(?:\W{1,4}[0-9]{1,7})?\W{0,40}\Z", re.IGNORECASE)
# Settings, or the command line of a process: not progress
SETTINGS = re.compile(r"Namespace\(|Arguments\(|Config\(|--[a-z]|\$\{")
WORD = re.compile(r"[A-Za-z]+")
PART = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+")
OWN_REPORT = "MUSTER_RESULT "


@dataclass
class Series:
    """The values of one metric, with the same kind of positions.

    offset: added to positions, since a program may count its steps from the beginning in each epoch; first, last: the
    first and the last position as printed; epoch: that of the last value, if known; offsets: the offset in each epoch;
    epochs: of each value that Hugging Face's Trainer printed; is_new_log: whether no value of the newest attempt was
    added yet; counts_total: whether the position that equals the total had a value of its own in this epoch, so that it
    has total + 1 values, counted from 0.
    """

    step: array[float] = field(default_factory=lambda: array("d"))
    value: array[float] = field(default_factory=lambda: array("d"))
    epochs: array[float] = field(default_factory=lambda: array("d"))
    offset: float = 0.0
    first: float = 0.0
    last: float = 0.0
    epoch: float | None = None
    offsets: dict[float, float] = field(default_factory=dict)
    is_new_log: bool = False
    counts_total: bool = False

    def add(self, line: Line, value: float) -> None:
        """Add a value at the position of its line, or at the next one if the line has none."""
        position = self.position(line)
        if self.is_new_log:
            self.is_new_log = False
            self.resume(line, position)
            position = self.position(line)
        if not self.value:
            self.first = position
        elif self.starts_again(line, position, value):
            gap = self.step[-1] - self.step[-2] if len(self.step) > 1 else 1.0
            is_extra = self.counts_total and position == self.first == 0
            self.offset = (
                self.offset + line.total + is_extra if line.total else self.step[-1] + max(1.0, gap) - position
            )
            self.counts_total = False
        self.last = position
        self.epoch = self.epoch if line.epoch is None else line.epoch
        if line.epoch is not None and len(self.offsets) < MAX_EPOCHS:
            self.offsets.setdefault(line.epoch, self.offset)
        if self.value and self.step[-1] == position + self.offset:  # a progress bar that is being redrawn
            self.value[-1] = value
            return
        self.step.append(position + self.offset)
        self.value.append(value)
        if line.kind == "trainer" and line.epoch is not None:
            self.epochs.append(line.epoch)

    def position(self, line: Line) -> float:
        """Return the position of a line or, without one, the number of values before it; the Trainer's position is its
        own.
        """
        if line.kind == "trainer":
            return self.last + 1.0
        return float(len(self.value)) if line.position is None else line.position

    def resume(self, line: Line, position: float) -> None:
        """Remove the values that the next attempt repeats before its first value is added."""
        if line.kind == "trainer":
            self.resume_trainer(0.0 if line.epoch is None else line.epoch)
            return
        offset = 0.0 if line.epoch is None else self.offsets.get(line.epoch)
        if line.kind == "count" or offset is None or (line.epoch is None and line.total):
            return  # the series continues
        kept = [(step, value) for step, value in zip(self.step, self.value, strict=True) if step < position + offset]
        self.step = array("d", (step for step, _value in kept))
        self.value = array("d", (value for _step, value in kept))
        self.offset, self.epoch, self.last = offset, line.epoch, position - 1.0

    def resume_trainer(self, epoch: float) -> None:
        """Remove the Trainer's values from an epoch onward."""
        count = sum(earlier < epoch for earlier in self.epochs)
        del self.step[count:], self.value[count:], self.epochs[count:]
        self.last = self.step[-1] if self.step else 0.0

    def starts_again(self, line: Line, position: float, value: float) -> bool:
        """Return whether a position counts from the start of a different epoch than the last one."""
        if line.kind != "step" or position > self.last:
            return False
        if line.epoch is not None and self.epoch is not None:
            return line.epoch > self.epoch
        if position == self.last:  # the end of a progress bar that is not merely being redrawn
            return position == line.total and value != self.value[-1]
        return position <= self.first


@dataclass
class Line:
    """The values in a line, and its position in the training run.

    Attributes:
        kind: What its position counts: step, epoch, or count if it has none; trainer for a line of Hugging Face's
            Trainer, whose step is derived from its epoch.
        position: Its step or epoch.
        total: The number of steps of an epoch, if known.
        epoch: Its epoch, if it has one besides its step.
    """

    kind: str
    position: float | None
    total: float | None = None
    epoch: float | None = None
    values: dict[str, float] = field(default_factory=dict)


@dataclass
class Table:
    """The header of a table of epochs or steps: the metric names by column."""

    columns: dict[int, str]
    width: int
    separator: str
    kind: str


class PrintedMetrics:
    """Collects metrics from the lines of one log."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, str], Series] = {}
        self.names: dict[str, str] = {}  # normalized name -> name as first printed
        self.points = 0
        self.epoch: float | None = None  # epoch from a heading such as "Epoch 3/10"
        self.table: Table | None = None
        self.lines_since_row = 0
        self.rich = RichOutput()
        self.trainer = TrainerLog()

    def feed(self, text: str) -> None:
        """Examine one line."""
        if len(text) > MAX_LINE or text.startswith(OWN_REPORT):
            return
        for line in self.rich.feed(ESCAPE.sub("", text) if "\x1b" in text else text):
            self.examine(line)

    def examine(self, text: str) -> None:
        """Examine one line, or a progress bar that was printed in several lines."""
        if len(text) > MAX_LINE:
            return
        self.lines_since_row += 1
        if self.table is not None and self.lines_since_row > TABLE_REACH:
            self.table = None
        if self.table is None and HINT.search(text) is None:
            return
        text = ESCAPE.sub("", text).rstrip()
        heading = EPOCH_HEADING.match(text)
        if heading is not None:
            self.epoch = float(heading[1])
            return
        table = read_header(text)
        if table is not None:
            self.table, self.lines_since_row = table, 0
            return
        line = read_row(text, self.table) if self.table is not None else None
        if line is not None:
            self.lines_since_row = 0
        else:
            line = read_line(text)
        if line is not None:
            trainer_epoch = self.trainer.feed(text)
            if trainer_epoch is not None:
                line.kind, line.position, line.epoch = "trainer", None, trainer_epoch
            if line.epoch is None:
                line.epoch = self.epoch
            if line.kind == "count" and line.epoch is not None:
                line.kind, line.position = "epoch", line.epoch
            self.add(line)

    def begin_log(self) -> None:
        """Note that the log of the next attempt is starting, which may repeat steps."""
        self.flush()
        self.table = self.epoch = None
        for series in self.series.values():
            series.is_new_log = True

    def flush(self) -> None:
        """Examine a progress bar that has not been ended by another line."""
        for line in self.rich.flush():
            self.examine(line)

    def add(self, line: Line) -> None:
        """Add the values of a line."""
        is_last = line.kind == "step" and line.position == line.total
        counts_total = is_last and self.differs(line)
        for name, value in line.values.items():
            key = normalize(name)
            if key not in self.names and len(self.names) >= MAX_METRICS:
                continue
            if self.points >= MAX_POINTS:
                return
            self.names.setdefault(key, name)
            self.points += 1
            series = self.series.setdefault((key, line.kind), Series())
            series.add(line, value)
            series.counts_total = series.counts_total or counts_total

    def differs(self, line: Line) -> bool:
        """Return whether a line has different values than the previous one; a redrawn progress bar has the same
        values.
        """
        earlier = [(self.series.get((normalize(name), line.kind)), value) for name, value in line.values.items()]
        return any(series is not None and bool(series.value) and series.value[-1] != value for series, value in earlier)

    def curves(self, source: str) -> CurveSet:
        """Return the curves: for each metric, the series by step, otherwise the one with the most values."""
        self.flush()
        curve_set = CurveSet(source)
        for key, name in self.names.items():
            candidates = [
                (kind == "step", len(series.value), kind, series)
                for (series_key, kind), series in self.series.items()
                if series_key == key and is_curve(series, kind)
            ]
            if candidates:
                *_rank, kind, best = max(candidates, key=lambda candidate: candidate[:2])
                unit, positions = self.positions(best, kind)
                pairs = zip(positions, best.value, strict=True)
                # a list of results by epoch may be printed in a different order
                for step, value in sorted(pairs, key=itemgetter(0)) if kind == "epoch" else pairs:
                    curve_set.add(name, step, UNKNOWN, value)
                curve_set.set_unit(name, unit)
            else:
                for value in self.only_values(key)[-1:]:
                    curve_set.single[curve_set.display_name(name)] = value
        return curve_set

    def positions(self, series: Series, kind: str) -> tuple[str, Sequence[float]]:
        """Return the unit of a series' positions (step, epoch or value), and the positions themselves."""
        if kind != "trainer":
            return ("value" if kind == "count" else kind), series.step
        steps = self.trainer.derive_steps(series.epochs)
        if steps is not None:
            return "step", steps
        ascends = all(before < after for before, after in itertools.pairwise(series.epochs))
        return ("epoch", series.epochs) if ascends else ("value", series.step)

    def only_values(self, key: str) -> list[float]:
        """Return the value of each series of a metric that consists of a single finite number."""
        only = [
            series.value[0] for (name, _kind), series in self.series.items() if name == key and len(series.value) == 1
        ]
        return [value for value in only if math.isfinite(value)]


def is_curve(series: Series, kind: str) -> bool:
    """Return whether the values in a series are a curve, rather than a setting that is printed repeatedly."""
    if len(series.value) < (MIN_COUNTED if kind == "count" else 2):
        return False
    return kind != "count" or len({repr(value) for value in series.value}) > 1


def normalize(name: str) -> str:
    """Normalize a name so that "train/loss" and "train_loss" are equal."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def name_parts(name: str) -> list[str]:
    """Return the lowercase parts of a name: "evalLoss/total" contains eval, loss and total."""
    return [part.lower() for part in PART.findall(name)]


def is_metric(name: str) -> bool:
    """Return whether a name denotes a metric, such as train_loss, loss_cls or acc@1."""
    parts = name_parts(name.replace("mAP", "Map").replace("IoU", "Iou"))
    while len(parts) > 1 and (parts[-1] in STATISTICS or parts[-1].isdigit()):
        parts.pop()
    if not parts or parts[0] in SETTING_STARTS or parts[-1] in SETTING_ENDS:
        return False
    part = next((part for part in (parts[-1], parts[0]) if part in METRICS), None)
    return part is not None and AMBIGUOUS.get(part, "") in name


def is_companion(name: str) -> bool:
    """Return whether a name denotes a number that is shown next to metrics, such as lr."""
    parts = name_parts(name)
    while len(parts) > 1 and parts[-1].isdigit():
        parts.pop()
    part = parts[-1] if parts else ""
    if part in AMBIGUOUS and AMBIGUOUS[part] not in name:
        return False
    return "_".join(parts) in COMPANIONS or (part in COMPANIONS and parts[0] not in SETTING_STARTS)


def key_before(text: str, position: int) -> tuple[str, str] | None:
    """Return the name of the number at a position and the separator between them, or None if the number has no name."""
    match = KEY.search(text[max(0, position - KEY_LENGTH) : position])
    if match is None:
        return None
    *qualifiers, name = match[1].split()
    for qualifier in reversed(qualifiers):
        if qualifier.lower() in OTHER_LOSSES:
            return None
        if qualifier.lower() not in QUALIFIERS:
            break
        name = f"{qualifier} {name}"
    return name.strip("-/.()%"), match[2].strip()


def read_line(text: str) -> Line | None:
    """Return the metrics in a progress line, or None if it has none."""
    if SETTINGS.search(text) is not None:
        return None
    metrics: dict[str, float] = {}
    companions: dict[str, float] = {}
    start = len(text)
    for count, number in enumerate(NUMBER.finditer(text)):
        if count >= MAX_NUMBERS:
            break
        key = key_before(text, number.start())
        if key is None:
            continue
        name, separator = key
        has_fraction = re.search(r"[.eEnN]", number[1]) is not None
        if separator in ("", "is", "|") and not has_fraction:  # "score 5" is a sentence
            continue
        value = float(number[1])
        if number[2] is not None:  # 9832/10000
            if float(number[2]) == 0 or value > float(number[2]):
                continue
            value /= float(number[2])
        if is_metric(name):
            metrics.setdefault(name.lower(), value)
            start = min(start, number.start() - len(name))
        elif separator != "" and is_companion(name):
            companions.setdefault(name.lower(), value)
    line = find_position(text)
    if not metrics and (line.kind == "count" or not any(name not in RATES for name in companions)):
        return None
    phase = find_phase(text[: max(0, start)])
    line.values = {add_phase(name, phase): value for name, value in {**metrics, **companions}.items()}
    return line


def find_position(text: str) -> Line:
    """Return a line with its position: its step, its position in the epoch, its epoch, or none."""
    pair = EPOCH_AND_BATCH.match(text)
    if pair is not None:
        return Line("step", float(pair[2]), epoch=float(pair[1]))
    epoch = EPOCH.search(text)
    number = float(epoch[1]) if epoch is not None and float(epoch[1]).is_integer() else None
    step = STEP.search(text)
    if step is not None:
        return Line("step", float(step[1]), epoch=number)
    remainder = text if epoch is None else text[: epoch.start()] + "|" + text[epoch.end() :]
    position = POSITION.search(remainder)
    if position is not None and float(position[1]) <= float(position[2]):
        return Line("step", float(position[1]), float(position[2]), number)
    return Line("count", None) if number is None else Line("epoch", number, epoch=number)


def find_phase(text: str) -> str:
    """Return val or test if a word before the metrics names that phase, and no word names training; otherwise ""."""
    line_words = {word.lower() for word in WORD.findall(text)}
    if "train" in line_words or "training" in line_words:
        return ""
    return next((phase for phase, names in PHASES.items() if line_words & names), "")


def add_phase(name: str, phase: str) -> str:
    """Return a metric's name with the phase, unless the name already has one."""
    has_phase = any(part in names for part in name_parts(name) for names in (*PHASES.values(), {"train", "training"}))
    return f"{phase} {name}" if phase and not has_phase else name


def split_columns(text: str, separator: str) -> list[str]:
    """Return the cells in a table row."""
    if separator == " ":
        return text.split()
    pattern = {"|": r"\|", "\t": r"\t", ",": ",", "  ": r"\s{2,}"}[separator]
    cells = [cell.strip() for cell in re.split(pattern, text.strip(" |"), maxsplit=MAX_COLUMNS)]
    return [cell for cell in cells if cell]


def read_header(text: str) -> Table | None:
    """Return the table whose header is this line, or None. Its first column is the epoch or step."""
    if len(text) > 400 or NUMBER.search(text) is not None:
        return None
    separator = next((mark for mark in ("|", "\t", ",") if mark in text.strip(" |")), "  ")
    cells = split_columns(text, separator)
    if len(cells) < 2 or name_parts(cells[0]) not in (["epoch"], ["step"], ["iter"], ["iteration"], ["epochs"]):
        return None
    columns = {
        index: cell.lower() for index, cell in enumerate(cells) if index and (is_metric(cell) or is_companion(cell))
    }
    if not any(is_metric(name) for name in columns.values()):
        return None
    if separator == "  " and not any(" " in cell for cell in cells):
        separator = " "
    return Table(columns, len(cells), separator, "epoch" if name_parts(cells[0])[0].startswith("epoch") else "step")


def read_row(text: str, table: Table) -> Line | None:
    """Return the values in a table row, or None for any other line. A progress bar may follow the last cell."""
    cells = split_columns(text, table.separator)
    if len(cells) != table.width and not (len(cells) > table.width and cells[table.width - 1].endswith(":")):
        return None
    first = re.fullmatch(r"([0-9]{1,12})(?:/[0-9]{1,12})?", cells[0])
    if first is None:
        return None
    values = {}
    for index, name in table.columns.items():
        cell = NUMBER.fullmatch(cells[index].rstrip(":%"))
        if cell is not None and cell[2] is None:
            values[name] = float(cell[1])
    return Line(table.kind, float(first[1]), values=values) if values else None


def curves_from_printed(source: str, lines: Iterable[str | None]) -> CurveSet:
    """Return the curves of the metrics in log lines; None marks the beginning of the next attempt's log."""
    metrics = PrintedMetrics()
    for line in lines:
        if line is None:
            metrics.begin_log()
        else:
            metrics.feed(line)
    return metrics.curves(source)


def curves_from_patterns(source: str, lines: Iterable[str | None], patterns: Sequence[re.Pattern[str]]) -> CurveSet:
    """Return the curves of the named groups in a user's patterns; the groups step and epoch give the position.

    None begins the log of the next attempt.
    """
    metrics = PrintedMetrics()
    for line in lines:
        if line is None:
            metrics.begin_log()
            continue
        if len(line) > MAX_LINE:
            continue
        for pattern in patterns:
            match = pattern.search(line)
            if match is not None:
                metrics.add(match_values(match))
    return metrics.curves(source)


def match_values(match: re.Match[str]) -> Line:
    """Return the numbers matched by the groups in a user's pattern."""
    numbers = {name: parse_group(text) for name, text in match.groupdict().items()}
    values = {name: value for name, value in numbers.items() if value is not None and name not in ("step", "epoch")}
    for kind in ("step", "epoch"):
        position = numbers.get(kind)
        if position is not None and math.isfinite(position):
            return Line(kind, position, values=values)
    return Line("count", None, values=values)


def parse_group(text: str | None) -> float | None:
    """Return the number in a group, or None if it is not a number."""
    try:
        return float(text.replace(",", "")) if text is not None and len(text) < 64 else None
    except ValueError:
        return None


def is_same_metric(name: str, other_name: str) -> bool:
    """Return whether two names denote the same metric, as "loss" and "train/loss" do."""
    short, long = sorted((normalize(name), normalize(other_name)), key=len)
    return long == short or long.removeprefix("train_").removeprefix("training_") == short


def merge_printed(source: str, curve_sets: Sequence[CurveSet], better_names: Iterable[str]) -> CurveSet:
    """Return the curves from a job's outputs, omitting those that a better source has.

    A program may print a metric to both of its outputs: the curve with more values is kept.
    """
    better = list(better_names)
    merged = CurveSet(source)
    for curve_set in curve_sets:
        for name, curve in curve_set.curves.items():
            other = merged.curves.get(name)
            if any(is_same_metric(name, better_name) for better_name in better):
                continue
            if other is None or len(curve.value) > len(other.value):
                merged.curves[name] = curve
        for name, step in curve_set.non_finite.items():
            if name in merged.curves or not any(is_same_metric(name, better_name) for better_name in better):
                merged.non_finite.setdefault(name, step)
    names = [*better, *merged.curves]
    for curve_set in curve_sets:
        for name, value in curve_set.single.items():
            if not any(is_same_metric(name, curve_name) for curve_name in names):
                merged.single.setdefault(name, value)
    return merged


def drop_copies(printed: CurveSet, sources: Sequence[CurveSet]) -> CurveSet:
    """Return printed curves, omitting those that a better source has under another name, such as eval_top1 for top1."""
    others = [(curve.step, curve.value) for source in sources for curve in source.list_curves()]
    printed.curves = {name: curve for name, curve in printed.curves.items() if (curve.step, curve.value) not in others}
    return printed
