"""Search of all layouts of a question: which are valid, which fit in memory, which are fastest.

A question names a model, an instance type, one or several cluster sizes and the knobs that are
settled. What is open is searched completely: nearly all work is done on arrays over a grid, not
layout by layout.

    SearchQuestion            model, platform, calibration, node counts, settled and open knobs
       |
       |  space               axes of the grid, and the variants (choices of the other modes)
       v
    Space                     grid = (nodes, pp) x tp x cp | x ep x vpp x micro_batch
       |                                outer degrees      |     inner degrees
       |  parts.blocks        whole clusters, up to a number of points that fits in memory
       v
    legality.families         1. rules on outer degrees: a mask over few points
       |                      2. rules on inner degrees, only where the outer ones passed
       |                      result: `Points`, the indices of the valid layouts
       |  parts.parts         whole clusters again, few enough for a program's arrays
       v
    search._Search.go         one program for each variant, lowered for the whole grid at once
       |                         memory of all valid layouts   -> those that fit
       |                         time of those that fit        -> `LayoutRanking`, `Counts`
       v
    answer.answer             records for the best layouts only -> `SearchResult`

Three facts make this fast, and explain the shape of the code:

- A program's arrays span only the axes on which a number depends. They are broadcast to the
  layouts asked for (`Points.pick`), so a number that depends on tp alone is computed once per tp.
- Schedules share a program, variants share the prices of blocks and of groups of ranks. The keys of
  the shared results are `own_modes`, `block_modes` and `group_modes` in `legality`.
- Layouts that come to the same program are searched once. `Space.once` leaves the others out of all
  counts; `same_order` and `seen_before` count them as rejected, so that the counts add up.

Clusters never influence each other. Blocks, parts and shares of a search between processes are
therefore cut between clusters, and `result.reunited` puts the answers together.

    question    what is asked, and the memory that a layout may use
    candidates  values of knobs that are searched only on request
    space       axes and variants               legality  rules, by outer and inner degrees
    parts       cutting a space by clusters     counts    considered, valid, fitting, priced
    search      the walk above                  ranking   the best layouts of every cluster
    runs        one variant in one schedule     answer    the result, from counts and ranking
    result      records that leave the folder

Begin with `search.search`, then read `space` and `legality`.
"""
