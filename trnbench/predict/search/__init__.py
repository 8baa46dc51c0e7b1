"""Search of all layouts of a question: which are valid, which fit in memory, which are fastest.

A question names a model, an instance type, one or several cluster sizes and the knobs that are
settled. What is open is searched completely. Begin with the page in `search`, then read `space` and
`legality`.

    question    the search, and the memory that a layout may use
    candidates  values of knobs that are searched only on request
    space       axes and variants               legality  rules, by outer and inner degrees
    parts       cutting a space by clusters     counts    considered, valid, fitting, priced
    search      the walk through all of these   ranking   the best layouts of every cluster
    runs        one variant in one schedule     answer    the result, from counts and ranking
    rows        layouts of a row of sizes       pricing   times, of few where the best are asked
    pieces      layouts looked at together      bounds    times that layouts do not fall short of
    result      records that leave the folder
"""
