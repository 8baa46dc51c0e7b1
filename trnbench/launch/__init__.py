"""Launch files: a predicted layout as the folder of files that starts it, and configurations read.

    plan                     a step in one layout on a cluster (`LaunchPlan`)
    framework, frameworks/   facts of a training framework, its configuration, how to read one
    scheduler, schedulers/   facts of a scheduler, the files that it reads
    catalogue                all of both, and which of them fit on an instance
    values, written          values that the user fills in; YAML, JSON and templates
    folder                   plan + framework + scheduler -> texts of one folder
    reading, arguments       a configuration or script that people run -> its layout

Nothing here runs a job. Begin with `folder.launch_folder`, and `reading.read_config` for the way
back.
"""
