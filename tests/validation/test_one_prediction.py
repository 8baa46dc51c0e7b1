"""What `validate` scores is what `train` prints: step time and interval, to the bit."""

from __future__ import annotations

import pytest

from trnbench.app.train_request import TrainCase, TrainRequest
from trnbench.app.verbs.train import run
from trnbench.catalog.search import built_in_folder, open_catalog
from trnbench.evidence.predict import Predictor, compare_training
from trnbench.evidence.rows import EvidenceFile, read_evidence
from trnbench.evidence.training_cases import EvidenceCase, Reader
from trnbench.workload.partial_layout import PartialLayout

PUBLISHED = built_in_folder() / "workloads" / "published"
CATALOG = open_catalog(environment={})


@pytest.mark.parametrize(
    ("file", "row"),
    [
        # A dense decoder on GPUs, and one on Trainium in a pipeline.
        ("gpu", "KOR-22B-selSP"),
        ("trainium", "ndoc-Llama-3-1-70B-n32-tp32pp8-fp32opt-r2.24.0"),
        # An encoder, and a mixture of experts.
        ("trainium", "ndoc-BERT-Large-Ph1-n16-tp1pp1-sr-r2.28.0"),
        ("gpu", "MBR-26.04.01-DeepSeek-V3-B200-256-mxfp8"),
    ],
)
def test_train_prints_what_validate_scores(file, row):
    published = read_evidence(PUBLISHED / f"{file}_training.csv")
    one = EvidenceFile(
        name=published.name,
        set=published.set,
        rows=tuple(found for found in published.rows if found.id == row),
    )
    (scored,) = compare_training(CATALOG, one)
    (case,) = Reader(CATALOG).cases(one)
    assert isinstance(case, EvidenceCase)
    layout = Predictor().predict(case).program.layout
    request = TrainRequest(
        cases=(
            TrainCase(
                model=case.setup.model.name,
                instance=case.setup.platform.instance.name,
                nodes=case.setup.nodes,
                layout=PartialLayout.of(layout),
            ),
        ),
        stack=case.setup.stack.name,
    )
    (answer,) = run(CATALOG, request)
    assert answer.step is not None, answer.reasons
    printed = answer.step.low_step_time_s, answer.step.step_time_s, answer.step.high_step_time_s
    assert printed == (scored.low_s, scored.predicted_s, scored.high_s)
    assert printed[0] < printed[1] < printed[2]
    assert scored.own_stack
