"""Questions, options written once: read from texts, and written as the line that asks again."""
