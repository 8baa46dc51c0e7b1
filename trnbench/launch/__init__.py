"""Files that start a layout: one table of facts a framework, one a scheduler, joined."""
