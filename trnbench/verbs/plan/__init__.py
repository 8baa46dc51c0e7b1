"""What `plan` is asked, finds, answers and says."""
