"""What is installed, what was found, and what runs with which stack."""
