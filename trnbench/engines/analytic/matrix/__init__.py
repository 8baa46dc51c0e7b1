"""Matrix products in closed form, one module a kind of compute unit."""
