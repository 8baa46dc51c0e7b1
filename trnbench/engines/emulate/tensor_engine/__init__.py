"""A blocked matrix kernel played instruction by instruction on the engines of one NeuronCore."""
