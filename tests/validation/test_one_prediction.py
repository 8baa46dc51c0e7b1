"""What `validate` scores is what `train` prints: step time and interval, to the bit."""

from __future__ import annotations

import pytest

from trnbench.evidence.comparison import Comparison
from trnbench.evidence.predict import Predictor
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, read_evidence
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.training_cases import EvidenceCase, Reader
from trnbench.facts.catalog.search import built_in_folder, open_catalog
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.verbs.quotes.question import StackChoice
from trnbench.verbs.train.question import TrainQuestion
from trnbench.verbs.train.run import run

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
        ("gpu", "MBR-26.04-DeepSeek-V3-B300-256-mxfp8"),
    ],
)
def test_train_prints_what_validate_scores(file, row):
    published = read_evidence(PUBLISHED / f"{file}_steps.csv")
    one = EvidenceFile(
        name=published.name,
        set=published.set,
        rows=tuple(found for found in published.rows if found.id == row),
    )
    (scored,) = compare_training(Reader(CATALOG), one)
    (case,) = Reader(CATALOG).cases(one)
    assert isinstance(case, EvidenceCase)
    layout = Predictor().predict(case).layout
    question = TrainQuestion(
        model=case.setup.model.name,
        places=((case.setup.platform.instance.name, case.setup.nodes),),
        layout=PartialLayout.of(layout),
        software=StackChoice(stack=case.setup.stack.name),
    )
    (answer,) = run(CATALOG, question)
    assert answer.step is not None, answer.reasons
    printed = answer.step.low_step_time_s, answer.step.step_time_s, answer.step.high_step_time_s
    assert printed == (scored.low_s, scored.predicted_s, scored.high_s)
    assert printed[0] < printed[1] < printed[2]
    assert scored.own_stack


def test_selective_of_a_stack_that_repeats_half_a_pass_is_the_mean_of_two_answers(tmp_path):
    """The row says so, the answer to the mode itself says so, and the row is what they say."""
    file = tmp_path / "mine.csv"
    cells = (
        "trn2.48xlarge,1,llama3.1-8b,4,1,16,1,64,8192,3,1,selective,fused,bf16-master,torchtitan,9"
    )
    file.write_text(
        "instance,nodes,model,tp,pp,dp,mbs,gbs,seq,zero,sequence_parallel,recompute,attention,"
        f"precision,framework,step_time_s\n{cells}\n"
    )
    (scored,) = compare_training(Reader(CATALOG), read_evidence(file))
    assert any("half the layers with recompute none" in words for words in scored.assumed)
    printed = {
        mode: run(
            CATALOG,
            TrainQuestion(
                model="llama3.1-8b",
                places=(("trn2.48xlarge", 1),),
                layout=PartialLayout(
                    **{"tp": 4, "pp": 1, "dp": 16, "cp": 1, "ep": 1, "vpp": 1},
                    **{"micro_batch": 1, "global_batch": 64, "sequence": 8192, "zero": 3},
                    sequence_parallel=True,
                    recompute=mode,
                ),
                software=StackChoice(stack="torchtitan-trn2"),
            ),
        )[0]
        for mode in ("none", "selective", "full")
    }
    none, full = (printed[mode].step for mode in ("none", "full"))
    assert none is not None
    assert full is not None
    assert scored.predicted_s == 0.5 * none.step_time_s + 0.5 * full.step_time_s
    selective = printed["selective"].step
    assert selective is not None
    assert selective.step_time_s == scored.predicted_s
    ends = selective.low_step_time_s, selective.high_step_time_s
    assert ends == (scored.low_s, scored.high_s)
    assert printed["selective"].layout["recompute"] == "selective"
    assert any("mean of --recompute none and full" in one for one in printed["selective"].warnings)
    assert not any("mean of" in one for mode in ("none", "full") for one in printed[mode].warnings)


def test_rows_in_several_releases_priced_together_are_priced_as_alone():
    """Releases lie along one grid, each with its own factor: no row may take another's."""
    published = read_evidence(PUBLISHED / "trainium_steps.csv")
    rows = [row for row in published.rows if row.id.startswith("ndoc-BERT-Large-Ph1-n16-")]
    together = _compared(published, rows)
    assert len(rows) >= 10
    assert len({row.predicted_s for row in together}) > len(rows) / 2
    assert together == [row for one in rows for row in _compared(published, [one])]


def _compared(published: EvidenceFile, rows: list[EvidenceRow]) -> list[Comparison]:
    file = EvidenceFile(name=published.name, set=published.set, rows=tuple(rows))
    return [*compare_training(Reader(CATALOG), file)]
