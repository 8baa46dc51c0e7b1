"""Launch files: a predicted layout as the folder of files that starts it, and configurations read.

    plan                     a step in one layout on a cluster (`LaunchPlan`)
    software                 facts of frameworks and schedulers, and what both say of a plan
    frameworks/, schedulers/ a framework's configuration, written and read; a scheduler's files
    catalogue                all of both, and which of them fit on an instance
    written                  values that the user fills in; YAML, JSON and templates
    folder                   plan + framework + scheduler -> texts of one folder
    reading, arguments       a configuration or script that people run -> its layout

Nothing here runs a job. Begin with `folder.launch_folder`, and `reading.read_config` for the way
back.
"""
