"""A pipeline schedule played slot by slot: seconds of a step and of every stage's waits.

In:  a `SlotOrder` (program/schedule), `StageTimes` by stage and chunk, `OverlapRules` of the stack.
Out: a `PlayedSchedule` (seconds by cause on every stage), or a `Timeline` of events.

    StageTimes --prepare.py--> SlotSeconds [stage, slot, layout] --.
    SlotOrder ---------------> who awaits whose message, waves ----+-> sweep.py --> SlotRuns
                                                                   |                 |
    Jitter, Straggler --times.py--> factors on compute ------------'                 |
                                                                                     |
    timeline.py (events) <-- play.py (last slot to end of step, account, causes) <---'

Each stage works off its slots in a fixed order. A slot starts when its stage is free and its
message has arrived; the message leaves when its lane is free and may hold up its sender. 1F1B:

    stage 0  [F0][F1]          [B0]    [B1]        F: forward, B: backward of a micro-batch
                 v   v         ^       ^           v: message to the next stage
    stage 1       [F0][B0][F1][B1]                  ^: message to the previous one
                                         time -->

The schedule therefore is a graph, and start times are longest paths in it. A wave is a set of
slots, at most one per stage, none of which awaits another of the same wave: `sweep` plays a wave of
all stages and layouts in a few array operations.

The bubble is the rest of a stage's time: waits for other stages. To separate messages from it,
`engines/emulate/step` also plays the step with messages that take no time.

Begin with `times.py` (the input), then `sweep.sweep`, then `play.py`.
"""
