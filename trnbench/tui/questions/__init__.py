"""The questions of the views, answered in processes of their own: without textual."""
